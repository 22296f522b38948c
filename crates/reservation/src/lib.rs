//! The program of a reservation pod: asks NVML which device it was given and writes it onto its own pod.

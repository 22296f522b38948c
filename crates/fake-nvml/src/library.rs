//! The fake `libnvidia-ml.so.1` itself: a small part of NVML with NVIDIA's names, codes and layouts, over devices that the
//! environment describes.
//!
//! `KAI_FAKE_NVML` is a list separated by `;` of `uuid,name,memory in MiB,MIG uuids joined by +` (all but the first may be
//! empty), `error=<code or word>` (initialisation fails) and `driver=<version>`. If `NVIDIA_VISIBLE_DEVICES` is set, only the
//! devices it names (UUID, index, `all`; a CDI name counts by what follows `gpu=`) are there, as in a container.

use std::{
    env,
    ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void},
    ptr,
    sync::{Mutex, MutexGuard},
};

const SUCCESS: c_uint = 0;
const UNINITIALIZED: c_uint = 1;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_SUPPORTED: c_uint = 3;
const NOT_FOUND: c_uint = 6;
const INSUFFICIENT_SIZE: c_uint = 7;
const ARGUMENT_VERSION_MISMATCH: c_uint = 25;

/// Handles are numbers dressed as pointers: device + 1, and for a MIG instance (device + 1) << 8 | (instance + 1).
type Handle = *mut c_void;

struct Device {
    uuid: String,
    name: String,
    memory: Option<u64>,
    mig: Vec<String>,
}

#[derive(Default)]
struct Library {
    users: usize,
    driver: String,
    devices: Vec<Device>,
}

static LIBRARY: Mutex<Option<Library>> = Mutex::new(None);

fn library() -> MutexGuard<'static, Option<Library>> {
    LIBRARY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What a handle stands for: a device, and perhaps one of its instances.
fn resolve(library: &Library, handle: Handle) -> Option<(&Device, usize, Option<&String>)> {
    let number = handle as usize;
    let (device, instance) = if number > 0xff { (number >> 8, Some(number & 0xff)) } else { (number, None) };
    let index = device.checked_sub(1)?;
    let device = library.devices.get(index)?;
    match instance {
        None => Some((device, index, None)),
        Some(instance) => Some((device, index, Some(device.mig.get(instance.checked_sub(1)?)?))),
    }
}

/// Answers with the library if it is initialised.
fn with_library(act: impl FnOnce(&Library) -> c_uint) -> c_uint {
    library().as_ref().map_or(UNINITIALIZED, act)
}

/// Answers about a device; `INVALID_ARGUMENT` for a handle that is none.
fn with_device(handle: Handle, act: impl FnOnce(&Device, usize, Option<&String>) -> c_uint) -> c_uint {
    with_library(|library| {
        resolve(library, handle).map_or(INVALID_ARGUMENT, |(device, index, instance)| act(device, index, instance))
    })
}

/// Writes one value where the caller wants it.
fn put<T>(place: *mut T, value: T) -> c_uint {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: NVML's contract makes a non-null out-parameter valid for writes of its type.
    unsafe { place.write(value) };
    SUCCESS
}

/// Writes a text with its end mark, if there is room.
fn put_text(place: *mut c_char, length: c_uint, text: &str) -> c_uint {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    if text.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller says there is room for `length` bytes, and the text with its end mark is not longer.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), place, text.len());
        place.add(text.len()).write(0);
    }
    SUCCESS
}

fn error_code(word: &str) -> c_uint {
    match word {
        "no-permission" => 4,
        "driver-not-loaded" => 9,
        "version-mismatch" => 18,
        number => number.parse().unwrap_or(999),
    }
}

fn read_environment() -> Result<Library, c_uint> {
    let mut library = Library { users: 0, driver: "580.95.05".to_owned(), devices: Vec::new() };
    let text = env::var("KAI_FAKE_NVML").unwrap_or_default();
    for entry in text.split([';', '\n']).map(str::trim).filter(|entry| !entry.is_empty()) {
        if let Some(error) = entry.strip_prefix("error=") {
            return Err(error_code(error.trim()));
        }
        if let Some(driver) = entry.strip_prefix("driver=") {
            library.driver = driver.trim().to_owned();
            continue;
        }
        let mut fields = entry.split(',').map(str::trim);
        let mut next = || fields.next().unwrap_or_default();
        library.devices.push(Device {
            uuid: next().to_owned(),
            name: next().to_owned(),
            memory: next().parse::<u64>().ok().and_then(|mebibytes| mebibytes.checked_mul(1 << 20)),
            mig: next().split('+').filter(|uuid| !uuid.is_empty()).map(str::to_owned).collect(),
        });
    }
    if let Ok(visible) = env::var("NVIDIA_VISIBLE_DEVICES") {
        let wanted: Vec<&str> =
            visible.split(',').map(|name| name.rsplit_once("gpu=").map_or(name, |(_, name)| name).trim()).collect();
        let all = std::mem::take(&mut library.devices);
        for (index, mut device) in all.into_iter().enumerate() {
            let number = index.to_string();
            let whole = wanted.iter().any(|name| *name == "all" || *name == device.uuid || *name == number);
            if !whole {
                // Of a GPU that is not named itself, a container sees the instances that are.
                device.mig.retain(|mig| wanted.contains(&mig.as_str()));
            }
            if whole || !device.mig.is_empty() {
                library.devices.push(device);
            }
        }
    }
    Ok(library)
}

/// `nvmlInit_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_uint {
    let mut library = library();
    if library.is_none() {
        match read_environment() {
            Ok(read) => *library = Some(read),
            Err(code) => return code,
        }
    }
    if let Some(library) = library.as_mut() {
        library.users += 1;
    }
    SUCCESS
}

/// `nvmlInit`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> c_uint {
    nvmlInit_v2()
}

/// `nvmlInitWithFlags`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    nvmlInit_v2()
}

/// `nvmlShutdown`: the last one out forgets everything.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_uint {
    let mut library = library();
    let Some(inner) = library.as_mut() else { return UNINITIALIZED };
    inner.users = inner.users.saturating_sub(1);
    if inner.users == 0 {
        *library = None;
    }
    SUCCESS
}

/// `nvmlErrorString`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: c_uint) -> *const c_char {
    let text: &'static CStr = match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires restart",
        17 => c"The operating system has blocked the request.",
        18 => c"RM has detected an NVML/RM version mismatch.",
        20 => c"Insufficient Memory",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

/// `nvmlSystemGetDriverVersion`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> c_uint {
    with_library(|library| put_text(version, length, &library.driver))
}

/// `nvmlSystemGetNVMLVersion`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> c_uint {
    with_library(|library| put_text(version, length, &format!("13.{}", library.driver)))
}

/// `nvmlSystemGetCudaDriverVersion`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) -> c_uint {
    with_library(|_| put(version, 13_000))
}

/// `nvmlSystemGetCudaDriverVersion_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> c_uint {
    nvmlSystemGetCudaDriverVersion(version)
}

/// `nvmlDeviceGetCount_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_uint {
    with_library(|library| put(count, c_uint::try_from(library.devices.len()).unwrap_or(c_uint::MAX)))
}

/// `nvmlDeviceGetHandleByIndex_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut Handle) -> c_uint {
    with_library(|library| {
        let index = index as usize;
        if index < library.devices.len() { put(handle, (index + 1) as Handle) } else { INVALID_ARGUMENT }
    })
}

/// `nvmlDeviceGetHandleByUUID`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, handle: *mut Handle) -> c_uint {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: NVML's contract makes this a text with an end mark.
    let uuid = unsafe { CStr::from_ptr(uuid) }.to_string_lossy();
    with_library(|library| {
        for (index, device) in library.devices.iter().enumerate() {
            if device.uuid == uuid {
                return put(handle, (index + 1) as Handle);
            }
            if let Some(instance) = device.mig.iter().position(|mig| *mig == uuid) {
                return put(handle, ((index + 1) << 8 | (instance + 1)) as Handle);
            }
        }
        NOT_FOUND
    })
}

/// `nvmlDeviceGetUUID`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUUID(handle: Handle, uuid: *mut c_char, length: c_uint) -> c_uint {
    with_device(handle, |device, _, instance| put_text(uuid, length, instance.unwrap_or(&device.uuid)))
}

/// `nvmlDeviceGetName`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetName(handle: Handle, name: *mut c_char, length: c_uint) -> c_uint {
    with_device(handle, |device, _, _| put_text(name, length, &device.name))
}

/// `nvmlDeviceGetIndex`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetIndex(handle: Handle, number: *mut c_uint) -> c_uint {
    with_device(handle, |_, index, _| put(number, c_uint::try_from(index).unwrap_or(c_uint::MAX)))
}

/// `nvmlMemory_t`.
#[repr(C)]
pub struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlDeviceGetMemoryInfo`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo(handle: Handle, memory: *mut Memory) -> c_uint {
    with_device(handle, |device, _, _| match device.memory {
        Some(total) => put(memory, Memory { total, free: total, used: 0 }),
        None => NOT_SUPPORTED,
    })
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlDeviceGetMemoryInfo_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: Handle, memory: *mut MemoryV2) -> c_uint {
    with_device(handle, |device, _, _| {
        if memory.is_null() {
            return INVALID_ARGUMENT;
        }
        // SAFETY: the caller must have set the version in the structure it hands over.
        let version = unsafe { (*memory).version };
        match device.memory {
            _ if version != 0x0200_0028 => ARGUMENT_VERSION_MISMATCH,
            Some(total) => put(memory, MemoryV2 { version, total, reserved: 0, free: total, used: 0 }),
            None => NOT_SUPPORTED,
        }
    })
}

/// `nvmlDeviceGetMigMode`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigMode(handle: Handle, current: *mut c_uint, pending: *mut c_uint) -> c_uint {
    with_device(handle, |device, _, _| {
        let mode = c_uint::from(!device.mig.is_empty());
        match put(current, mode) {
            SUCCESS => put(pending, mode),
            error => error,
        }
    })
}

/// `nvmlDeviceIsMigDeviceHandle`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceIsMigDeviceHandle(handle: Handle, is_mig: *mut c_uint) -> c_uint {
    with_device(handle, |_, _, instance| put(is_mig, c_uint::from(instance.is_some())))
}

/// `nvmlDeviceGetMaxMigDeviceCount`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMaxMigDeviceCount(handle: Handle, count: *mut c_uint) -> c_uint {
    with_device(handle, |device, _, _| put(count, if device.mig.is_empty() { 0 } else { 7 }))
}

/// `nvmlDeviceGetMigDeviceHandleByIndex`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(handle: Handle, index: c_uint, mig: *mut Handle) -> c_uint {
    with_device(handle, |device, number, _| {
        let index = index as usize;
        if index < device.mig.len() { put(mig, ((number + 1) << 8 | (index + 1)) as Handle) } else { NOT_FOUND }
    })
}

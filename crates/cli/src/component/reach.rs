//! How an API server reaches admission that runs outside of its cluster, where no Service leads to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use anyhow::Context as _;

/// Whether this process runs in a pod.
pub fn is_in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// The URL of a port of this machine, with the address that it has towards the API server.
pub fn own_url(server: &http::Uri, port: u16) -> anyhow::Result<String> {
    let address = own_address(server).with_context(|| format!("find the way to the API server {server}"))?;
    Ok(format!("https://{}", SocketAddr::new(address, port)))
}

fn own_address(server: &http::Uri) -> anyhow::Result<IpAddr> {
    let host = server.host().context("it has no host")?.trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(443);
    let target = (host, port).to_socket_addrs()?.next().context("its name has no address")?;
    let any = if target.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    // Nothing is sent: to connect a datagram socket only asks the kernel for the way.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_this_machine_reaches_it_by_loopback() {
        let url = |server: &str| own_url(&server.parse().unwrap(), 9443);
        assert_eq!(url("https://127.0.0.1:6443").unwrap(), "https://127.0.0.1:9443");
        let error = format!("{:#}", url("https://no-such-host.invalid:6443").unwrap_err());
        assert!(error.contains("the way to the API server https://no-such-host.invalid:6443"), "{error}");
    }
}

//! What this machine gives to the network of worlds, found out by making one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use substrate_init::launch::NewNetwork;
use substrate_policy::terms::{Mode, NetSpec};
use substrate_sys::namespace::Namespaces;

use crate::id_maps;
use crate::layout::Layout;
use crate::steps::Steps;
use crate::trial::{self, Row};
use substrate_egress::{self as egress, HostFiles, Proxies};

/// Everything about the network: the gate, the host's resolver, its proxies.
pub fn rows() -> Vec<Row> {
    let mut rows = vec![gate_row(), resolver_row(&HostFiles::default())];
    rows.extend(proxy_row(&Proxies::from_variables(|name| {
        std::env::var(name).ok()
    })));
    rows
}

fn gate_row() -> Row {
    let what = "network gate";
    match redirected() {
        Ok(true) => Row {
            what,
            works: true,
            found: format!(
                "every port, by nftables; {} connections of a world at one time",
                egress::most_connections()
            ),
            fix: None,
        },
        Ok(false) => Row {
            what,
            works: true,
            found: "only ports that the policy lists, because the kernel has no nftables with \
                    tproxy; other ports fail without a record"
                .to_owned(),
            fix: Some("modprobe nft_tproxy nfnetlink_log, or a kernel that has them".to_owned()),
        },
        Err((doing, error)) => Row {
            what,
            works: false,
            found: format!("cannot {doing}: {error}"),
            fix: Some(
                "worlds need user and network namespaces; `substrate world doctor` says more"
                    .to_owned(),
            ),
        },
    }
}

/// Makes the network of a world and looks whether every port of it leads to the gate.
fn redirected() -> Result<bool, (String, io::Error)> {
    let told = |doing: &str| {
        let doing = doing.to_owned();
        move |error| (doing, error)
    };
    let maps = id_maps::maps().map_err(|error| {
        let doing = "find out who we are".to_owned();
        (doing, io::Error::other(error))
    })?;
    let (plan, _) = egress::plan(&NetSpec::default(), Mode::Enforce, &[]);
    let (ours, theirs) = UnixStream::pair().map_err(told("make a socket pair"))?;
    let (layout, held) = (Layout::default(), BTreeMap::new());
    let mut recipe = trial::recipe(&layout, &held, maps.by);
    let (network, joining) =
        NewNetwork::new(plan.clone(), theirs.into()).map_err(told("make a socket pair"))?;
    recipe.network = Some(joining);
    let mut steps = Steps::default();
    recipe.become_somebody(&mut steps);
    recipe.enter_network(&mut steps);
    let namespaces = Namespaces::USER.and(Namespaces::UTS);
    trial::attempt(namespaces, maps.lines, Some(network), steps)?;
    let made = plan.receive(ours.as_fd());
    Ok(made.map_err(told("take over the sockets"))?.redirected)
}

fn resolver_row(files: &HostFiles) -> Row {
    let servers = files.servers();
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    Row {
        what: "host resolver",
        works: true,
        found: format!("allowed names are looked up at {}", servers.join(", ")),
        fix: None,
    }
}

fn proxy_row(proxies: &Proxies) -> Option<Row> {
    let used = proxies.shown();
    if used.is_empty() && proxies.problems.is_empty() {
        return None;
    }
    let mut found = proxies.problems.clone();
    if !used.is_empty() {
        found.insert(0, format!("worlds go out through {}", used.join(", ")));
    }
    Some(Row {
        what: "proxy",
        works: proxies.problems.is_empty(),
        found: found.join("; "),
        fix: (!proxies.problems.is_empty())
            .then(|| "set https_proxy and http_proxy to an http:// address".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_and_proxies_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let files = HostFiles {
            resolv_conf: directory.path().join("resolv.conf"),
            hosts: directory.path().join("hosts"),
        };
        std::fs::write(&files.resolv_conf, "nameserver 192.0.2.1\n").unwrap();
        let row = resolver_row(&files);
        assert!(row.works && row.found.contains("192.0.2.1"), "{row:?}");
        std::fs::write(&files.resolv_conf, "search example.com\n").unwrap();
        assert!(resolver_row(&files).found.contains("127.0.0.1"));

        let with = |value: &'static str| {
            Proxies::from_variables(|name| (name == "https_proxy").then(|| value.to_owned()))
        };
        let row = proxy_row(&with("http://user:word@proxy.test:3128")).unwrap();
        assert!(
            row.works && row.found.contains("proxy.test:3128"),
            "{row:?}"
        );
        assert!(!row.found.contains("word"), "no secrets: {row:?}");
        assert!(!proxy_row(&with("socks5://127.0.0.1:1080")).unwrap().works);
        assert_eq!(proxy_row(&Proxies::default()), None);
    }
}

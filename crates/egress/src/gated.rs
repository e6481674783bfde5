//! The network of a world, served by the gate: the only way from a world to the host's network.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use substrate_init::netplan::{NetFds, NetPlan};
use substrate_policy::budget::{Budget, Cells};
use substrate_policy::terms::WorldSpec;

use crate::network::{NetReport, Network, NetworkMaker};
use crate::{self as egress, Event, Follow, Gate, GateConfig, Proxies};

/// Told of what a gate refuses or limits, from the gate's own thread; must be quick.
pub type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;

/// Looks for other terms than those that a world was made from, for each gate anew.
pub type Following = Box<dyn Fn(&WorldSpec) -> Follow + Send + Sync>;

/// Gives every world that isolates its network a gate of its own; all of them spend the budget
/// that is kept in `spent`, and take up what `following` finds.
pub fn networks(
    on_event: OnEvent,
    spent: Cells,
    following: Option<Following>,
) -> Box<NetworkMaker> {
    Box::new(move |spec: &WorldSpec| {
        if !spec.net.isolate {
            return Ok(None);
        }
        let (plan, mut config) = egress::plan(&spec.net, spec.mode, &spec.publish);
        config.proxies = Proxies::from_variables(|name| std::env::var(name).ok());
        for problem in &config.proxies.problems {
            on_event(&Event::Problem(problem.clone()));
        }
        let problems = config.proxies.problems.clone();
        let (rate, total) = (spec.net.bytes_per_sec, spec.net.total_bytes);
        config.budget = Arc::new(Budget::over(Cells::clone(&spent), rate, total));
        config.follow = following.as_ref().map(|following| following(spec));
        let on_event = on_event.clone();
        config.listener = Some(Box::new(move |event| on_event(event)));
        Ok(Some(Box::new(Gated {
            plan: Some(plan),
            config: Some(config),
            gate: None,
            problems,
        }) as Box<dyn Network>))
    })
}

struct Gated {
    plan: Option<NetPlan>,
    config: Option<GateConfig>,
    gate: Option<Gate>,
    problems: Vec<String>,
}

impl Network for Gated {
    fn plan(&mut self) -> io::Result<NetPlan> {
        self.plan
            .take()
            .ok_or_else(|| io::Error::other("the network was already planned"))
    }

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let nsswitch = std::fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
        vec![
            (
                PathBuf::from("/etc/resolv.conf"),
                egress::RESOLV_CONF.into(),
            ),
            (
                PathBuf::from("/etc/hosts"),
                egress::hosts_file("substrate").into(),
            ),
            (
                PathBuf::from("/etc/nsswitch.conf"),
                egress::nsswitch_conf(&nsswitch).into(),
            ),
        ]
    }

    fn start(&mut self, sockets: NetFds) -> io::Result<()> {
        let config = self
            .config
            .take()
            .ok_or_else(|| io::Error::other("the gate was already started"))?;
        self.gate = Some(Gate::start(sockets, config).map_err(io::Error::other)?);
        Ok(())
    }

    fn update(&mut self, spec: &WorldSpec) -> io::Result<()> {
        if let Some(gate) = &self.gate {
            gate.set_rules(&spec.net, spec.mode);
        }
        Ok(())
    }

    fn report(&mut self) -> NetReport {
        match &self.gate {
            Some(gate) => self.told(gate.redirected(), gate.report()),
            None => NetReport::default(),
        }
    }

    fn drain(&mut self) {
        if let Some(gate) = &self.gate {
            gate.drain();
        }
    }

    fn finish(&mut self) -> NetReport {
        match self.gate.take() {
            Some(gate) => self.told(gate.redirected(), gate.finish_gently()),
            None => NetReport::default(),
        }
    }
}

impl Gated {
    fn told(&self, redirected: bool, seen: egress::NetReport) -> NetReport {
        let problem = |text: &String| format!("net: {text}");
        let mut degraded: Vec<String> = self.problems.iter().map(problem).collect();
        if !redirected {
            degraded.push(
                "net: without nftables only the ports that the policy lists are served".to_owned(),
            );
        }
        if let Some(why) = &seen.failure {
            degraded.push(format!("net: the gate ended early: {why}"));
        }
        if seen.refusals_not_kept > 0 {
            let count = seen.refusals_not_kept;
            degraded.push(format!("net: {count} further refusals were only counted"));
        }
        NetReport {
            scopes: seen.scopes(),
            uses: seen.uses,
            degraded,
        }
    }
}

//! What whoever was refused can do instead. Programs that work for people try the same again unless they are told.

/// How to go on after a refusal by a rule of this list.
pub fn way_on(list: &str) -> &'static str {
    let section = list.split('.').next().unwrap_or_default();
    match (section, list) {
        (_, "commands.ask" | "effects.ask" | "tools.ask") => {
            "it needs a person's yes: tell what you want to do and why, and go on with something else; \
             trying again is refused again"
        }
        (_, "commands.allowed") => {
            "only commands on a list run here: `substrate allowed` prints it; take one of those"
        }
        (_, "fs.hide") => "this is hidden on purpose: work without it, and do not look for a copy",
        (_, "fs.protect") => {
            "this is kept as it is: leave it, and tell the person what you would change in it"
        }
        ("fs", _) => {
            "write inside the project, or in /tmp; `substrate allowed` prints what may be written"
        }
        ("net", _) => {
            "this host is not among those that are allowed: use one that is (`substrate allowed` prints them), \
             or tell the person which you need"
        }
        ("tools", _) => {
            "this tool is not for use here: take another one, or tell the person what you need it for"
        }
        ("policy", _) | ("self", _) => {
            "this would change what guards you, which only a person at a terminal may do"
        }
        _ => {
            "it is refused however it is written: take another way to what you want, or tell the person what you \
             need; `substrate allowed` prints what may run"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_rule_has_a_way_on_of_its_own() {
        let lists = [
            "commands.denied",
            "commands.ask",
            "commands.allowed",
            "fs.write",
            "fs.hide",
            "fs.protect",
            "net.allowed",
            "tools.denied",
            "policy",
        ];
        let ways: std::collections::BTreeSet<&str> =
            lists.iter().map(|list| way_on(list)).collect();
        assert_eq!(ways.len(), lists.len());
        assert_eq!(way_on("net.denied"), way_on("net.allowed"));
        assert_eq!(way_on("anything else"), way_on("commands.denied"));
    }
}

//! Programs that need what a world refuses, and the switch of the policy that each of them needs: the
//! kernel tells them no more than `Operation not permitted`.

use std::path::Path;

use substrate_command::Line;
use substrate_policy::terms::{PathPattern, WorldSpec};

/// What a program needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Tracing,
    Namespaces,
    Containers,
    Docker,
    Privilege,
}

const NEEDS: &[(&str, Need)] = &[
    ("gdb", Need::Tracing),
    ("gdbserver", Need::Tracing),
    ("lldb", Need::Tracing),
    ("ltrace", Need::Tracing),
    ("rr", Need::Tracing),
    ("strace", Need::Tracing),
    ("unshare", Need::Namespaces),
    ("chromium", Need::Namespaces),
    ("google-chrome", Need::Namespaces),
    ("apptainer", Need::Containers),
    ("buildah", Need::Containers),
    ("bwrap", Need::Containers),
    ("crun", Need::Containers),
    ("firejail", Need::Containers),
    ("flatpak", Need::Containers),
    ("nerdctl", Need::Containers),
    ("podman", Need::Containers),
    ("runc", Need::Containers),
    ("systemd-nspawn", Need::Containers),
    ("docker", Need::Docker),
    ("docker-compose", Need::Docker),
    ("doas", Need::Privilege),
    ("pkexec", Need::Privilege),
    ("su", Need::Privilege),
    ("sudo", Need::Privilege),
];

/// What to say about a line that failed in a world with these terms.
pub fn hints(line: &Line, spec: &WorldSpec) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for invocation in &line.invocations {
        let name = invocation.argv.first().and_then(|word| word.value());
        let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) else {
            continue;
        };
        let name = Path::new(name).file_name().unwrap_or_default();
        let words: Vec<&[u8]> = invocation
            .argv
            .iter()
            .filter_map(|word| word.value())
            .collect();
        if name == "git"
            && let Some(text) = configures(&words).and_then(|what| kept_config(what, spec))
            && !said.contains(&text)
        {
            said.push(text);
        }
        let known = NEEDS.iter().find(|(known, _)| name == *known);
        if let Some((name, need)) = known
            && let Some(text) = hint(name, *need, spec)
            && !said.contains(&text)
        {
            said.push(text);
        }
    }
    said
}

/// What of git writes the configuration of a repository.
fn configures(words: &[&[u8]]) -> Option<&'static str> {
    let has = |any: &[&[u8]]| words.iter().any(|word| any.contains(word));
    let elsewhere: [&[u8]; 9] = [
        b"--global",
        b"--system",
        b"-f",
        b"--file",
        b"-l",
        b"--list",
        b"--get",
        b"--get-all",
        b"--get-regexp",
    ];
    if has(&[b"config"]) && !has(&elsewhere) {
        return Some("git config");
    }
    let writes: [&[u8]; 6] = [
        b"add",
        b"remove",
        b"rm",
        b"rename",
        b"set-url",
        b"set-branches",
    ];
    if has(&[b"remote"]) && has(&writes) {
        return Some("git remote");
    }
    has(&[b"--set-upstream", b"--set-upstream-to", b"-u"]).then_some("setting an upstream")
}

/// A file that is protected is a mount, and git says no more than that it is busy.
fn kept_config(what: &str, spec: &WorldSpec) -> Option<String> {
    let kept = |pattern: &PathPattern| pattern.glob.ends_with(b"/.git/config");
    spec.protect.iter().any(kept).then(|| {
        format!(
            "{what} writes .git/config, which `fs.protect` of policy '{}' keeps as it is in a world, since keys in it name programs to \
             run; set it outside the session, or for one command with `git -c KEY=VALUE …` or GIT_CONFIG_COUNT",
            spec.policy_id
        )
    })
}

fn hint(name: &str, need: Need, spec: &WorldSpec) -> Option<String> {
    Some(match need {
        Need::Tracing if spec.allow_ptrace => return None,
        Need::Tracing => format!(
            "{name} traces other programs, which a world refuses; `world.allow: [ptrace]` in the policy permits it"
        ),
        Need::Namespaces if spec.allow_userns => return None,
        Need::Namespaces => format!(
            "{name} makes user namespaces, which a world refuses; `world.allow: [userns]` in the policy permits it"
        ),
        Need::Containers => format!(
            "{name} needs mounts of its own, and containers cannot be nested in a world; it runs under a policy \
             with `world.enabled: off`, where nothing is held"
        ),
        Need::Docker => format!(
            "{name} needs its daemon's socket, which a world does not show; `world.sockets` in the policy lets it \
             in, and with it everything that the daemon may do"
        ),
        Need::Privilege => format!(
            "{name} gains rights, and nothing can gain any in a world; it runs under a policy with \
             `world.enabled: off`"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_the_configuration_of_a_repository() {
        let configures = |text: &str| {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            configures(&words)
        };
        for line in [
            "git config user.name x",
            "git -C sub config --unset a.b",
            "git remote add o /nowhere",
            "git push -u o main",
        ] {
            assert!(configures(line).is_some(), "{line}");
        }
        for line in [
            "git config --global user.name x",
            "git config --get user.name",
            "git remote -v",
            "git add .",
        ] {
            assert!(configures(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_switch_that_is_on_needs_no_words() {
        let mut spec = WorldSpec::default();
        assert!(hint("gdb", Need::Tracing, &spec).is_some());
        spec.allow_ptrace = true;
        assert!(hint("gdb", Need::Tracing, &spec).is_none());
        assert!(hint("unshare", Need::Namespaces, &spec).is_some());
        assert!(NEEDS.iter().all(|(name, _)| !name.contains('/')));
    }
}

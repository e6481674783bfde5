//! Models and renderings that the tests share.
#![allow(dead_code, clippy::panic)]

use std::collections::BTreeMap;

use substrate_command::model::{
    Arity, Condition, Conditional, Consequence, Meaning, OperandSpec, Opt, Product, Stdin, Style,
    Subject, Tool, Usage,
};
use substrate_command::{Action, Args, Context, Cwd, Line, Models, Object, Piece, Word};

/// Models by name.
pub struct Table(BTreeMap<Vec<u8>, Tool>);

impl Models for Table {
    fn tool(&self, name: &[u8]) -> Option<Tool> {
        self.0.get(name).cloned()
    }
}

fn meaning(word: &str) -> Meaning {
    match word {
        "text" => Meaning::Text,
        "read" => Meaning::Path(vec![Action::Read]),
        "write" => Meaning::Path(vec![Action::Write]),
        "delete" => Meaning::Path(vec![Action::Delete]),
        "chmod" => Meaning::Path(vec![Action::Chmod]),
        "directory" => Meaning::Directory,
        "url" => Meaning::Url,
        "host" => Meaning::Host,
        "remote" => Meaning::Remote(vec![Action::Read]),
        "port" => Meaning::Port,
        "command" => Meaning::Command,
        "command-until" => Meaning::CommandUntil,
        "shell" => Meaning::Shell,
        "shell-word" => Meaning::ShellWord,
        "program" => Meaning::Program,
        "code" => Meaning::Code,
        "script" => Meaning::Script,
        "assignment" => Meaning::Assignment,
        "sed" => Meaning::Sed,
        "awk" => Meaning::Awk,
        "editor" => Meaning::EditorCommand,
        "volume" => Meaning::Volume,
        "sql" => Meaning::Sql,
        "mode" => Meaning::Mode,
        "argument" => Meaning::Argument,
        "at-file" => Meaning::AtFile,
        "dd" => Meaning::Keyed(vec![
            ("of".to_owned(), Meaning::Path(vec![Action::Write])),
            ("if".to_owned(), Meaning::Path(vec![Action::Read])),
        ]),
        "git-setting" => Meaning::Keyed(vec![
            ("alias.*".to_owned(), Meaning::Alias),
            ("core.pager".to_owned(), Meaning::Shell),
        ]),
        other => panic!("no meaning {other}"),
    }
}

fn operands(text: &str) -> Vec<OperandSpec> {
    text.split_whitespace()
        .map(|word| OperandSpec {
            repeated: word.ends_with("..."),
            means: meaning(word.trim_end_matches("...")),
        })
        .collect()
}

fn any(text: &str) -> Condition {
    Condition {
        any: text.split_whitespace().map(str::to_owned).collect(),
        ..Condition::default()
    }
}

/// A tool, described as in a synopsis.
pub struct Describe(pub Tool);

pub fn tool(names: &str) -> Describe {
    Describe(Tool {
        names: names.split(',').map(str::to_owned).collect(),
        ..Tool::default()
    })
}

impl Describe {
    pub fn style(mut self, style: Style) -> Self {
        self.0.style = style;
        self
    }

    /// `-r,--recursive; -o=write; --color[=text]; --bind=read+write`
    pub fn options(mut self, text: &str) -> Self {
        let mut options = self.0.options.to_vec();
        for option in text
            .split(';')
            .map(str::trim)
            .filter(|option| !option.is_empty())
        {
            let (names, value) = match option.split_once('=') {
                Some((names, value)) if names.ends_with('[') => (
                    names.trim_end_matches('['),
                    Arity::Optional(meaning(value.trim_end_matches(']'))),
                ),
                Some((names, value)) if value.contains('+') => (
                    names,
                    Arity::Several(value.split('+').map(meaning).collect()),
                ),
                Some((names, value)) => (names, Arity::Required(meaning(value))),
                None => (option, Arity::None),
            };
            options.push(Opt {
                names: names
                    .split(',')
                    .map(|name| name.trim().to_owned())
                    .collect(),
                value,
            });
        }
        self.0.options = options.into();
        self
    }

    pub fn operands(mut self, text: &str) -> Self {
        self.0.usages.push(Usage {
            when: Condition::default(),
            operands: operands(text),
        });
        self
    }

    pub fn when(mut self, options: &str, text: &str) -> Self {
        self.0.usages.push(Usage {
            when: any(options),
            operands: operands(text),
        });
        self
    }

    pub fn recursive(mut self, options: &str) -> Self {
        self.0.recursive = Some(any(options));
        self
    }

    pub fn inert(mut self, options: &str) -> Self {
        self.0.inert = Some(any(options));
        self
    }

    pub fn effect(mut self, when: &str, action: Action, to: Subject) -> Self {
        self.0.effects.push(Conditional {
            when: any(when),
            what: Consequence { action, to },
        });
        self
    }

    pub fn produces(mut self, product: Product) -> Self {
        self.0.produces.push(Conditional {
            when: Condition::default(),
            what: product,
        });
        self
    }

    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.0.stdin = stdin;
        self
    }

    pub fn sub(mut self, sub: Describe) -> Self {
        self.0.subcommands.push(sub.0);
        self
    }

    pub fn inherit(mut self) -> Self {
        self.0.inherit = true;
        self
    }
}

fn wrapper(name: &str) -> Describe {
    tool(name).style(Style::Posix)
}

/// A small set of everyday tools.
pub fn tools() -> Vec<Describe> {
    vec![
        tool("rm")
            .options("-r,-R,--recursive; -f,--force; -v,--verbose; --no-preserve-root")
            .operands("delete...")
            .recursive("-r"),
        tool("ls").options("-l; -a,--all; --color[=text]").operands("read..."),
        tool("cat").operands("read...").produces(Product::Files),
        tool("tee").operands("write...").produces(Product::Input),
        tool("rev").produces(Product::Input),
        tool("cp").options("-r,--recursive; -t,--target-directory=write").operands("read... write").recursive("-r"),
        tool("chmod").options("-R,--recursive").operands("mode chmod...").recursive("-R"),
        tool("tail").options("-n,--lines=text; -#").operands("read...").produces(Product::Files),
        tool("curl")
            .options("-o,--output=write; -d,--data=at-file; -s; -f; -L; -S; -X,--request=text")
            .operands("url...")
            .produces(Product::Network),
        tool("base64").options("-d,--decode").operands("read").produces(Product::Decoded),
        tool("sed").options("-i,--in-place[=text]; -e,--expression=sed; -n").when("-e", "read...").operands("sed read..."),
        tool("awk").options("-f=script; -v=text").operands("awk read..."),
        tool("dd").style(Style::Plain).operands("dd..."),
        tool("tar")
            .style(Style::Bundle)
            .options("-c,--create; -x; -z; -f,--file=write; -C,--directory=directory; -v; --to-command=shell")
            .operands("read..."),
        tool("find")
            .style(Style::SingleDash)
            .options("-name=text; -exec=command-until; -delete; -type=text; (; )")
            .operands("read..."),
        wrapper("sudo")
            .options("-u,--user=text; -n; -D,--chdir=directory")
            .effect("", Action::Privilege, Subject::Unspecified)
            .operands("assignment... command"),
        wrapper("env").options("-i; -u=text; -C,--chdir=directory; -S=shell").operands("assignment... command"),
        wrapper("nohup").operands("command"),
        wrapper("nice").options("-n=text").operands("command"),
        wrapper("timeout").options("-s=text; -k=text").operands("text command"),
        wrapper("setsid").options("-w").operands("command"),
        wrapper("stdbuf").options("-o=text; -i=text; -e=text").operands("command"),
        wrapper("busybox").operands("command"),
        wrapper("xargs")
            .options("-I=text; -0; -n=text; -P=text")
            .operands("command")
            .stdin(Stdin::Arguments),
        wrapper("parallel").options("-j=text").operands("shell").stdin(Stdin::Arguments),
        wrapper("ssh").options("-p=text; -i=read").operands("host shell"),
        wrapper("sh,bash,dash")
            .options("-c; -s; -e; -x; -l; -i; -o=text; --rcfile=script")
            .when("-c", "shell-word text...")
            .when("-s", "text...")
            .operands("script text...")
            .stdin(Stdin::Shell),
        wrapper("python,python3")
            .options("-c=code; -m=text; -u; -V,--version")
            .when("-c -m", "text...")
            .operands("script text...")
            .stdin(Stdin::Code),
        wrapper("watch").options("-n=text").operands("shell"),
        tool("vim").options("-c=editor; +=editor").operands("write..."),
        tool("psql").options("-c=sql; -h=host"),
        tool("git")
            .style(Style::Posix)
            .options("-C=directory; -c=git-setting; --git-dir=read; -p")
            .sub(tool("commit").options("-m,--message=text; -a,--all; --amend"))
            .sub(
                tool("push")
                    .options("-f,--force; --force-with-lease[=text]; -u,--set-upstream; -d,--delete; -n,--dry-run")
                    .inert("-n")
                    .effect("-f", Action::Delete, Subject::Resource("git-history".to_owned()))
                    .operands("remote text..."),
            )
            .sub(tool("status,st").options("-s,--short"))
            .sub(tool("remote").sub(tool("add").operands("text url")).sub(tool("remove,rm").operands("text"))),
        tool("kubectl")
            .options("-n,--namespace=text; --context=text")
            .inherit()
            .sub(
                tool("delete")
                    .options("--all; --force")
                    .effect("", Action::Delete, Subject::Resource("cluster".to_owned())),
            )
            .sub(tool("exec").options("-i; -t; -c=text").operands("text command")),
        tool("docker")
            .sub(tool("run").style(Style::Posix).options("-v,--volume=volume; --rm; -i; -t; -p=text").operands("text command")),
        tool("bwrap").style(Style::Posix).options("--bind=read+write; --ro-bind=read+text; --unshare-all").operands("command"),
        tool("cargo").sub(tool("test,t").options("-p=text; --release")),
    ]
}

pub fn models() -> Table {
    let mut table = BTreeMap::new();
    for Describe(tool) in tools() {
        for name in &tool.names {
            table.insert(name.clone().into_bytes(), tool.clone());
        }
    }
    Table(table)
}

/// The context of most tests: home and working directory are known, nothing else.
pub fn context(models: &Table) -> Context<'_> {
    Context {
        home: Some(b"/home/u"),
        pwd: Some(b"/srv/p"),
        ..Context::new(models)
    }
}

#[cfg(feature = "parse")]
pub fn line(text: &str) -> Line {
    let models = models();
    substrate_command::analyse(text.as_bytes(), &context(&models))
}

/// A word: globs as `*{…}`, unknown parts as `?{…}`, and `…` behind one that may be several.
pub fn word(word: &Word) -> String {
    let mut text = String::new();
    for piece in &word.pieces {
        match piece {
            Piece::Known(bytes) => text.push_str(&String::from_utf8_lossy(bytes)),
            Piece::Glob(bytes) => {
                text.push_str(&format!("*{{{}}}", String::from_utf8_lossy(bytes)))
            }
            Piece::Unknown(bytes) => {
                text.push_str(&format!("?{{{}}}", String::from_utf8_lossy(bytes)))
            }
        }
    }
    if word.splits {
        text.push('…');
    }
    text
}

fn object(object: &Object) -> String {
    match object {
        Object::Path(path) => word(path),
        Object::Host { host, port: None } => word(host),
        Object::Host {
            host,
            port: Some(port),
        } => format!("{}:{port}", word(host)),
        Object::Port(Some(port)) => port.to_string(),
        Object::Port(None) => "any".to_owned(),
        Object::Code(source, text) if text.pieces.is_empty() => source.name().to_owned(),
        Object::Code(source, text) => format!("{}({})", source.name(), word(text)),
        Object::Resource(name) => format!("@{name}"),
        Object::Unspecified => "-".to_owned(),
    }
}

/// The words of every invocation, one string each.
pub fn commands(line: &Line) -> Vec<String> {
    line.invocations
        .iter()
        .map(|invocation| {
            invocation
                .argv
                .iter()
                .map(word)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

/// Everything that an invocation is, in one string each.
pub fn render(line: &Line) -> Vec<String> {
    line.invocations
        .iter()
        .map(|invocation| {
            let mut text = String::new();
            if !invocation.via.is_empty() {
                text.push_str(&format!("{}> ", invocation.via.join(">")));
            }
            for set in &invocation.assignments {
                text.push_str(&format!(
                    "{}={} ",
                    String::from_utf8_lossy(&set.name),
                    word(&set.value)
                ));
            }
            let words: Vec<String> = invocation.argv.iter().map(word).collect();
            text.push_str(&words.join(" "));
            match &invocation.cwd {
                Cwd::Start => {}
                Cwd::Moved(words) => {
                    let path: Vec<String> = words.iter().map(word).collect();
                    text.push_str(&format!(" [in {}]", path.join("/")));
                }
                Cwd::Unknown => text.push_str(" [in ?]"),
            }
            for effect in &invocation.effects {
                let recursive = if effect.recursive { "(r)" } else { "" };
                text.push_str(&format!(
                    "; {}{recursive} {}",
                    effect.action.name(),
                    object(&effect.object)
                ));
            }
            if invocation.unclear.is_some() {
                text.push_str(" !");
            }
            text
        })
        .collect()
}

/// Options with their values, operands behind `|`.
pub fn arguments(args: &Args, argv: &[Word]) -> String {
    let mut parts: Vec<String> = args.subcommands.clone();
    for option in &args.options {
        let mark = if option.known { "" } else { "?" };
        let name = String::from_utf8_lossy(&option.name);
        parts.push(match &option.value {
            Some(value) => format!("{mark}{name}={}", word(value)),
            None => format!("{mark}{name}"),
        });
    }
    parts.push("|".to_owned());
    for operand in args.operands.iter().filter(|operand| !operand.subcommand) {
        let mark = if operand.maybe_value { "?" } else { "" };
        parts.push(format!("{mark}{}", word(&argv[operand.index])));
    }
    parts.join(" ")
}

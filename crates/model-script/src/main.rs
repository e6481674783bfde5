//! `model-script SCRIPT [--port N] [--log FILE]`: serves a script on loopback and says where.

use std::io::Write;
use std::process::ExitCode;

use substrate_model_script::{Options, Script, Server};

const USAGE: &str = "usage: model-script SCRIPT [--port N] [--log FILE]";

fn main() -> ExitCode {
    match serve(std::env::args().skip(1)) {
        Ok(never) => match never {},
        Err(problem) => {
            let _ = writeln!(std::io::stderr(), "model-script: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn serve(mut words: impl Iterator<Item = String>) -> Result<std::convert::Infallible, String> {
    let (mut options, mut script) = (Options::default(), None);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| USAGE.to_owned());
        match word.as_str() {
            "--port" => options.port = value()?.parse().map_err(|_| USAGE.to_owned())?,
            "--log" => options.log = Some(value()?.into()),
            _ if script.is_none() && !word.starts_with('-') => script = Some(word),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let path = script.ok_or_else(|| USAGE.to_owned())?;
    let text = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
    let script: Script =
        serde_json::from_slice(&text).map_err(|error| format!("{path}: {error}"))?;
    let server = Server::start(script, &options).map_err(|error| error.to_string())?;
    let _ = writeln!(std::io::stdout(), "{}", server.url());
    loop {
        std::thread::park();
    }
}

//! How commands of worlds end, and why they do not begin.

use std::io;
use std::path::PathBuf;

use substrate_init::launch::{End, Stage, StartError};
use substrate_trace::WorldId;
use substrate_world::backend::{ExecRequest, Status};
use substrate_world::error::WorldError;

/// How a command ended.
pub fn status_of(end: End, request: &ExecRequest, world: WorldId) -> Result<Status, WorldError> {
    match end {
        End::Exited(code) => Ok(Status::Exited(code)),
        End::Signaled(signal) => Ok(Status::Signaled(signal)),
        End::NotStarted(error) => {
            let (program, cwd) = (PathBuf::from(&request.program), request.cwd.clone());
            Err(start_error(error, world, program, cwd))
        }
    }
}

/// What kept a command from starting.
pub fn start_error(
    error: StartError,
    world: WorldId,
    program: PathBuf,
    cwd: PathBuf,
) -> WorldError {
    match error {
        StartError::Own(error) => WorldError::own("hear from the command")(error),
        StartError::Gone => WorldError::Gone(world),
        StartError::Stage(Stage::Cwd, source) => WorldError::Cwd {
            path: cwd,
            source: source.into(),
        },
        StartError::Stage(Stage::Exec, source) if source.kind() == io::ErrorKind::NotFound => {
            WorldError::NotFound(program)
        }
        StartError::Stage(stage, source) => WorldError::Start {
            program,
            doing: stage_name(stage).into(),
            source: source.into(),
        },
    }
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Receive => "receiving the request",
        Stage::Terminal => "making a terminal",
        Stage::Fork => "making a process",
        Stage::TakeTerminal => "taking over the terminal",
        Stage::Descriptors => "passing descriptors",
        Stage::Cwd => "entering the working directory",
        Stage::Exec => "executing",
    }
}

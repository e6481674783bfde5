//! A second backend and a second front: what runs commands knows neither.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use substrate_broker::person::Barrier;
use substrate_broker::{Broker, Caller, Choice as Policy, Home, Options};
use substrate_changes::gc::Leftover;
use substrate_executor::exit_status::DENIED;
use substrate_executor::front::{
    Choice, Front, Given, GivenStdio, GivenStreams, HeldChanges, Inquiry, Kind, Streams,
};
use substrate_executor::job::Job;
use substrate_executor::oneshot;
use substrate_executor::session::Session;
use substrate_executor::worlds::{Oversight, Worlds};
use substrate_policy::terms::WorldSpec;
use substrate_runtime::supervise::Ending;
use substrate_trace::{Enforced, FsDiff, WorldId};
use substrate_world::backend::{
    self, Beside, ExecPlace, ExecResult, Held, PolicyChange, Running, Status, Stdio, Used,
    WorldBackend, WorldHandle,
};
use substrate_world::error::WorldError;
use substrate_world::progress::{OnProgress, Progress};

type Asked = Arc<Mutex<Vec<String>>>;

/// A backend that runs nothing and writes down what it was asked.
struct Recorder(Asked);

impl WorldBackend for Recorder {
    fn ensure_session(
        &self,
        _: &WorldSpec,
        _: Option<backend::ExecJob<'_>>,
    ) -> Result<WorldHandle, WorldError> {
        Ok(WorldHandle { id: WorldId::new() })
    }

    fn resume_session(
        &self,
        _: &WorldSpec,
        _: backend::ExecJob<'_>,
        _: &backend::Held,
    ) -> Result<WorldHandle, WorldError> {
        Ok(WorldHandle { id: WorldId::new() })
    }

    fn exec_beside(
        &self,
        place: ExecPlace<'_>,
        job: backend::ExecJob<'_>,
        _: Option<&mut Beside<'_>>,
        begin: &mut dyn FnMut() -> bool,
    ) -> Result<ExecResult, WorldError> {
        if !begin() {
            return Err(WorldError::CalledOff);
        }
        let place = match place {
            ExecPlace::Fresh(_) => "fresh",
            ExecPlace::Once(_) => "once",
            ExecPlace::Again(..) => "again",
            ExecPlace::Session(_) => "session",
        };
        let given = matches!(job.streams.stdio, Stdio::Given(_));
        let argv: Vec<_> = job
            .request
            .argv
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        let text = format!("{place} {} given={given}", argv.join(" "));
        self.0.lock().unwrap().push(text);
        Ok(ExecResult {
            world: WorldId::new(),
            status: Status::Exited(7),
            enforced: Enforced::default(),
            scopes_used: Vec::new(),
            net: Vec::new(),
            limits_reached: Vec::new(),
            put_aside: Vec::new(),
            held: None,
        })
    }

    fn spawn(
        &self,
        world: WorldHandle,
        _: backend::ExecJob<'_>,
    ) -> Result<Box<dyn Running>, WorldError> {
        Err(WorldError::Gone(world.id))
    }

    fn enforced(&self, _: WorldHandle) -> Result<Enforced, WorldError> {
        Ok(Enforced::default())
    }

    fn is_alive(&self, _: WorldHandle) -> bool {
        true
    }

    fn is_empty(&self, _: WorldHandle) -> bool {
        true
    }

    fn drain(&self, _: WorldHandle, _: Duration) {}

    fn used(&self, _: WorldHandle) -> Result<Used, WorldError> {
        Ok(Used::default())
    }

    fn fs_diff(&self, held: &Held, _: bool, _: OnProgress<'_>) -> Result<FsDiff, WorldError> {
        Err(WorldError::Gone(held.world))
    }

    fn apply_policy(&self, _: WorldHandle, _: &WorldSpec) -> Result<PolicyChange, WorldError> {
        Ok(PolicyChange::default())
    }

    fn end(&self, _: WorldHandle) -> Result<Option<Held>, WorldError> {
        Ok(None)
    }

    fn see_off(&self) {}
}

impl Worlds for Recorder {
    fn backend(&self, _: Oversight) -> Box<dyn WorldBackend> {
        Box::new(Recorder(Arc::clone(&self.0)))
    }

    fn leftovers(&self) -> Vec<Leftover> {
        Vec::new()
    }
}

/// A front without a terminal, whose commands write to a file.
struct Client {
    output: File,
    said: Mutex<Vec<String>>,
}

impl Front for Client {
    fn say(&self, _: Kind, text: &str) {
        self.said.lock().unwrap().push(text.to_owned());
    }

    fn line(&self, _: Kind, text: &str) -> String {
        text.to_owned()
    }

    fn barrier(&self, _: &Caller) -> Option<Barrier> {
        Some(Barrier::NoTerminal)
    }

    fn ask(&self, _: &dyn Inquiry) -> io::Result<Given> {
        Ok(Given::denied())
    }

    fn settle(&self, _: &Held, _: &dyn HeldChanges) -> Option<Choice> {
        None
    }

    fn progress(&self) -> Box<dyn FnMut(Progress) -> bool> {
        Box::new(|_| true)
    }

    fn streams(&self) -> io::Result<Streams> {
        let nothing = OwnedFd::from(File::open("/dev/null")?);
        let output = OwnedFd::from(self.output.try_clone()?);
        Ok(Streams::Given(GivenStreams {
            stdio: GivenStdio::Streams([nothing, output.try_clone()?, output]),
            abandoned: None,
        }))
    }
}

struct Rig {
    directory: tempfile::TempDir,
    asked: Asked,
    client: Arc<Client>,
    session: Session,
}

impl Rig {
    fn new(policy: &str) -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let top = directory.path();
        let file = top.join("policy.yaml");
        fs::write(&file, format!("id: test\nname: Test\n{policy}")).unwrap();
        fs::create_dir(top.join("project")).unwrap();
        let home = Home {
            path: top.join(".substrate"),
            user: top.to_owned(),
        };
        let options = Options {
            choice: Policy::File(file),
            ceilings: Vec::new(),
            require_approval: false,
            world: None,
            home_variable: None,
            unattended: false,
            session_start: top.join("project"),
            caller: Caller::own(),
        };
        let broker = Broker::open(home, options).unwrap();
        let asked = Asked::default();
        let client = Arc::new(Client {
            output: tempfile::tempfile().unwrap(),
            said: Mutex::default(),
        });
        let env = vec![CString::new("PATH=/usr/bin:/bin").unwrap()];
        let worlds = Arc::new(Recorder(Arc::clone(&asked)));
        let session = Session::begin(broker, env, client.clone(), worlds);
        Rig {
            directory,
            asked,
            client,
            session,
        }
    }

    fn run(&self, argv: &[&str]) -> Ending {
        let job = Job::Argv(argv.iter().map(OsString::from).collect());
        oneshot::run(&self.session, &job, None, &self.project())
    }

    fn project(&self) -> std::path::PathBuf {
        self.directory.path().join("project")
    }

    fn output(&self) -> String {
        let mut text = String::new();
        let again = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&self.client.output)
        );
        File::open(Path::new(&again))
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }
}

#[test]
fn another_backend_runs_what_the_policy_wants_in_a_world() {
    let rig = Rig::new("mode: observe\ncommands: { isolated: [\"expr *\"] }\n");
    assert_eq!(rig.run(&["expr", "1"]), Ending::Exit(7));
    assert_eq!(*rig.asked.lock().unwrap(), ["fresh expr 1 given=true"]);
    let trace = fs::read_to_string(rig.directory.path().join(".substrate/trace.jsonl")).unwrap();
    assert!(
        trace.contains("\"command_complete\"") && trace.contains("\"exit\":7"),
        "{trace}"
    );
}

#[test]
fn another_front_has_streams_of_its_own_and_is_told() {
    let rig =
        Rig::new("mode: enforce\nworld: { enabled: \"off\" }\ncommands: { denied: [\"env *\"] }\n");
    assert_eq!(rig.run(&["pwd"]), Ending::Exit(0));
    assert_eq!(rig.output().trim_end(), rig.project().to_str().unwrap());
    assert_eq!(rig.run(&["env"]), Ending::Exit(DENIED));
    let said = rig.client.said.lock().unwrap().join("\n");
    assert!(said.contains("denied by policy 'test'"), "{said}");
    assert!(rig.asked.lock().unwrap().is_empty(), "no world was wanted");
}

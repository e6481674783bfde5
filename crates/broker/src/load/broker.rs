//! The decision: one function from request to verdict, read top to bottom.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use substrate_policy::settings::IsolatedIn;
use substrate_policy::settings::Nested;

use substrate_command::cached::Cached;
use substrate_command::{Context, Line, Models, Tool, analyse, analyse_argv};
use substrate_policy::budget::{Budget, Cells};
use substrate_policy::settings::Details;
use substrate_policy::terms::{HomeMode, Place, WorldSpec};
use substrate_policy::{Judgement, Policy, Reason, judge, unapproved};
use substrate_trace::{Mode, Outcome, RateLimit, RuleRef, Verdict};

use super::answer::{Answer, Evaluation, Explanation, Terms};
use super::approvals::{self, Approvals, Approved, Grant, Question};
use super::caller::Caller;
use super::egress::{Egress, Spent};
use super::error::BrokerError;
use super::ground::{self, Ground};
use super::meaning::Meaning;
use super::moment::Moment;
use super::policies::{self, LoadedPolicy, Note, Policies, PolicyInfo, State, lock};
use super::process::Identity;
use super::request::{Input, Lasting, Options, Origin, Request, Start};
use super::state_file::{StateError, now};
use super::trust::Trust;
use super::world_terms::{uses_worlds, world_spec};
use crate::choice::Choice;
use crate::facts::Machine;
use crate::home::{Home, bytes};
use crate::profile::{self, Profile};

/// What the policies decide, before it is turned into permission.
struct Decided {
    line: Line,
    ground: Ground,
    strict: Judgement,
    lenient: Judgement,
    isolate: bool,
}

impl Decided {
    fn would(&self) -> Option<Outcome> {
        match self.lenient.verdict {
            Verdict::Deny => Some(Outcome::WouldDeny),
            Verdict::Ask => Some(Outcome::WouldAsk),
            _ => None,
        }
    }
}

/// Where something would run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placing {
    Direct,
    Isolated,
    Session,
}

impl Placing {
    fn name(self) -> &'static str {
        match self {
            Placing::Direct => "direct",
            Placing::Isolated => "isolated",
            Placing::Session => "session",
        }
    }
}

/// Holds the policies of a session and judges by them. Clones share everything; any number of threads
/// may ask at once.
#[derive(Debug, Clone)]
pub struct Broker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    home: Home,
    options: Options,
    policies: Policies,
    approvals: Approvals,
    trust: Trust,
    /// A person types at this process's own prompt.
    own_prompt: AtomicBool,
    /// What governed the last line at the prompt: when it changes, what was approved for the session ends.
    last: Mutex<Option<String>>,
    spent: Spent,
    /// Whoever asks is in the world of a session, which holds, judges and records what he starts.
    in_world: bool,
    /// Where a program was last started without a profile above it, and when.
    no_profile: Mutex<Option<(PathBuf, Instant)>>,
}

impl Broker {
    /// Loads the policies.
    pub fn open(home: Home, options: Options) -> Result<Self, BrokerError> {
        let policies = Policies::open(
            home.clone(),
            options.choice.clone(),
            options.ceilings.clone(),
        )?;
        Ok(Self::with(home, options, policies))
    }

    /// Loads the policies for a person's own prompt, which there must be whatever state they are in:
    /// the shipped default stands in for what cannot be loaded, until it can.
    pub fn open_for_a_person(home: Home, options: Options) -> Result<Self, BrokerError> {
        let policies = Policies::open_whatever_happens(
            home.clone(),
            options.choice.clone(),
            options.ceilings.clone(),
        )?;
        Ok(Self::with(home, options, policies))
    }

    fn with(home: Home, options: Options, policies: Policies) -> Self {
        Self {
            shared: Arc::new(Shared {
                approvals: Approvals::new(&home),
                trust: Trust::new(&home, options.caller.clone()),
                in_world: options.caller.is_in_world(),
                home,
                options,
                policies,
                own_prompt: AtomicBool::new(false),
                last: Mutex::default(),
                spent: Spent::default(),
                no_profile: Mutex::default(),
            }),
        }
    }

    /// Whether whoever asks is in the world of a session, which records what he starts.
    pub fn in_world(&self) -> bool {
        self.shared.in_world
    }

    /// What a person should know about the policies; empties the list.
    pub fn take_warnings(&self) -> Vec<String> {
        self.take_notes().iter().map(Note::text).collect()
    }

    /// What happened to the policies since this was last asked.
    pub fn take_notes(&self) -> Vec<Note> {
        self.shared.policies.take_notes()
    }

    /// Whether there is something that a person should know.
    pub fn has_notes(&self) -> bool {
        self.shared.policies.has_notes()
    }

    /// Says that a person types at this process's own prompt, which no session encloses: trusted
    /// profiles replace the policy there, and what is approved for the session ends with this process.
    pub fn own_prompt(&self) {
        self.shared.own_prompt.store(true, Ordering::Relaxed);
    }

    /// Looks whether the policies are others than when it was asked last, or made.
    pub fn changes(&self) -> impl FnMut() -> bool + Send + use<> {
        let broker = self.clone();
        let mut known = self.shared.policies.last();
        move || {
            let now = broker.state();
            let changed = !Arc::ptr_eq(&now, &known);
            known = now;
            changed
        }
    }

    /// The policy of the session.
    pub fn policy(&self) -> Policy {
        self.state().base.policy.clone()
    }

    /// Which policy the session runs under.
    pub fn info(&self) -> Arc<PolicyInfo> {
        self.state().base.info.clone()
    }

    /// Everything that is not needed for judging.
    pub fn details(&self) -> Arc<Details> {
        self.state().base.details.clone()
    }

    /// The policy of the session as it was found last, without another look at the files.
    pub fn last_policy(&self) -> Policy {
        self.shared.policies.last().base.policy.clone()
    }

    /// What is not needed for judging, as it was found last.
    pub fn last_details(&self) -> Arc<Details> {
        self.shared.policies.last().base.details.clone()
    }

    /// Every policy that counts everywhere: the session's, then those that it cannot loosen.
    pub fn in_force(&self) -> Vec<Arc<PolicyInfo>> {
        let state = self.state();
        std::iter::once(&state.base)
            .chain(&state.ceilings)
            .map(|held| held.info.clone())
            .collect()
    }

    /// The flags by which `approvals grant` asks the same question as this session.
    pub fn grant_flags(&self) -> Vec<String> {
        let mut flags = match &self.shared.options.choice {
            Choice::Active => Vec::new(),
            Choice::Name(name) => vec!["--policy".to_owned(), name.clone()],
            Choice::File(path) => vec!["--policy".to_owned(), path.display().to_string()],
            Choice::Shipped(_) => Vec::new(),
        };
        if self.shared.options.require_approval {
            flags.push("--require-approval".to_owned());
        }
        flags
    }

    /// Whether lines run in a world of the session that may serve later ones too.
    pub fn reuses_worlds(&self) -> bool {
        let variable = self.shared.options.world.as_deref();
        let state = self.shared.policies.last();
        let all = || std::iter::once(&state.base).chain(&state.ceilings);
        all().any(|held| uses_worlds(held, variable))
            && all().all(|held| held.details.world.reuse_session)
    }

    /// Whether some policy has rules or a model for programs of this name.
    pub fn speaks_of(&self, name: &[u8]) -> bool {
        let state = self.state();
        std::iter::once(&state.base)
            .chain(&state.ceilings)
            .any(|held| held.policy.speaks_of(name))
    }

    /// Whether every policy lets `SHIM_BYPASS=1` pass.
    pub fn allows_bypass(&self) -> bool {
        let state = self.state();
        std::iter::once(&state.base)
            .chain(&state.ceilings)
            .all(|held| held.policy.settings().allow_bypass)
    }

    /// How it was set up.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The home that this broker works in.
    pub fn home(&self) -> &Home {
        &self.shared.home
    }

    /// The home that the variable `HOME` named at the session's start, where that is another one.
    pub fn other_homes(&self) -> Vec<Vec<u8>> {
        let other = self.shared.home.other(self.home_variable());
        other.into_iter().collect()
    }

    /// What people have approved.
    pub fn approvals(&self) -> &Approvals {
        &self.shared.approvals
    }

    /// Which profiles people trust.
    pub fn trust(&self) -> &Trust {
        &self.shared.trust
    }

    /// Takes changed policies over now; what came of it is among the notes.
    pub fn refresh(&self) {
        self.state();
    }

    /// Where the session's spent bytes are counted.
    pub fn egress_cells(&self) -> io::Result<Cells> {
        let Shared {
            home,
            options,
            spent,
            ..
        } = &*self.shared;
        spent.cells(home, || options.caller.session())
    }

    /// Takes bytes that are about to leave from what is left for the session.
    pub fn check_egress(&self, bytes: u64) -> io::Result<Egress> {
        let total = self.total_bytes();
        let budget = Budget::over(self.egress_cells()?, None, total);
        if budget.take_all(bytes) {
            return Ok(Egress::Allowed);
        }
        Ok(Egress::Denied(RateLimit {
            limit: "net.egress_budget.total_bytes".to_owned(),
            bytes,
            used: budget.used(),
            total: total.unwrap_or(u64::MAX),
        }))
    }

    /// The smallest total of all policies that count everywhere.
    fn total_bytes(&self) -> Option<u64> {
        let state = self.state();
        std::iter::once(&state.base)
            .chain(&state.ceilings)
            .filter_map(|held| held.details.total_bytes)
            .min()
    }

    fn state(&self) -> Arc<State> {
        self.shared.policies.current()
    }

    /// The verdict on a request.
    pub fn evaluate(&self, request: &Request<'_>) -> Evaluation {
        self.evaluate_by(request, &self.facts(request), None)
    }

    /// What would become of a request, for somebody who only wants to know: it permits nothing. Lines
    /// that are asked about at one go share what the machine looked like.
    pub fn explain(&self, request: &Request<'_>, moment: &Moment) -> Explanation {
        moment.begin(request);
        let state = moment.state(|| self.state());
        let facts = self.facts(request).having_looked(moment.looked());
        let profiles_of = |directory: &Path| moment.profiles(directory);
        let decided = self.decide(request, &state, &facts, None, &profiles_of);
        let approved = match decided.strict.verdict {
            Verdict::Ask => self.approved_before(request, &decided, &state, &facts, moment),
            _ => None,
        };
        let refused = decided.strict.verdict == Verdict::Deny;
        let asked = decided.strict.verdict == Verdict::Ask && approved.is_none();
        let place = if refused {
            Placing::Direct
        } else {
            self.placing(decided.isolate, &decided.line, &decided.ground)
        };
        Explanation {
            place: place.name(),
            would: decided.would().filter(|_| !refused && !asked),
            policy: decided.ground.primary().info.clone(),
            profiles: decided.ground.profiles,
            line: decided.line,
            judgement: decided.strict.and(decided.lenient),
            approved: approved.unwrap_or_default(),
        }
    }

    /// The grants that answer the question of a decision, which is only put where there are any.
    fn approved_before(
        &self,
        request: &Request<'_>,
        decided: &Decided,
        state: &State,
        facts: &Machine<'_>,
        moment: &Moment,
    ) -> Option<Vec<Grant>> {
        if moment.nothing_granted(|| self.shared.approvals.list().is_ok_and(|all| all.is_empty())) {
            return None;
        }
        let (ground, line) = (&decided.ground, &decided.line);
        let question = self.question(request, ground, &decided.strict, line, facts);
        self.remembered(request, &question, line, state, facts)
    }

    /// The verdict on a program start inside a world.
    pub fn evaluate_start(&self, request: &Request<'_>, start: Start<'_>) -> Evaluation {
        let facts = self.facts(request).seen_by(start.seen);
        self.evaluate_by(request, &facts, Some(start))
    }

    fn evaluate_by(
        &self,
        request: &Request<'_>,
        facts: &Machine<'_>,
        start: Option<Start<'_>>,
    ) -> Evaluation {
        let state = match start {
            Some(_) => self.shared.policies.lately(),
            None => self.state(),
        };
        let profiles_of = |directory: &Path| {
            Rc::new(match start {
                // The kernel said where it happens, which is no link.
                Some(_) if directory == request.cwd => self.profile_lately(directory),
                _ => ground::profiles_of(directory),
            })
        };
        let decided = self.decide(request, &state, facts, start, &profiles_of);
        let would = decided
            .would()
            .map(|outcome| (outcome, deciding(&decided.lenient)));
        let Decided {
            line,
            ground,
            strict,
            lenient,
            isolate,
        } = decided;
        let rule = deciding(&strict);
        let (mut question, mut approved) = (None, Vec::new());
        let mut environment = Meaning::default();
        let terms = || match start {
            // It stays in the world that it happens in.
            Some(_) => Terms {
                place: Place::Direct,
            },
            None => self.terms(isolate, &line, &ground, facts),
        };
        let answer = match strict.verdict {
            Verdict::Deny => Answer::Deny(rule),
            Verdict::Ask => {
                environment = request.around.meaning();
                let mut asked = self.question(request, &ground, &strict, &line, facts);
                asked.environment.clone_from(&environment);
                let terms = terms();
                match self.remembered(request, &asked, &line, &state, facts) {
                    Some(grants) => {
                        approved = grants;
                        Answer::Allow(terms)
                    }
                    None => {
                        question = Some(asked);
                        Answer::Ask(terms, rule)
                    }
                }
            }
            _ => Answer::Allow(terms()),
        };
        Evaluation {
            line,
            judgement: strict.and(lenient),
            answer,
            would,
            policy: ground.primary().info.clone(),
            profiles: ground.profiles,
            question,
            approved,
            environment,
            found: facts.take_found(),
        }
    }

    /// The profile of a directory in which a program starts. That there is none is believed for a
    /// moment: most programs start where one has just been started.
    fn profile_lately(&self, directory: &Path) -> Vec<Profile> {
        let lately = |(known, when): &(PathBuf, Instant)| {
            known == directory && when.elapsed() < policies::MOMENT
        };
        let known = lock(&self.shared.no_profile).as_ref().is_some_and(lately);
        if known {
            return Vec::new();
        }
        let now = Instant::now();
        let found = profile::find(directory);
        *lock(&self.shared.no_profile) = found.is_none().then(|| (directory.to_owned(), now));
        found.into_iter().collect()
    }

    /// What all policies that count say about a request.
    fn decide(
        &self,
        request: &Request<'_>,
        state: &Arc<State>,
        facts: &Machine<'_>,
        start: Option<Start<'_>>,
        profiles_of: &dyn Fn(&Path) -> Rc<Vec<Profile>>,
    ) -> Decided {
        let line = self.analyse(request, state);
        let ground = self.ground(request, state, &line, facts, profiles_of);
        if self.in_guarded_world(&ground) {
            facts.set_guarded();
        }
        let others: Vec<Line> = start
            .iter()
            .flat_map(|start| start.also)
            .map(|argv| {
                let input = Input::Argv(argv);
                self.analyse(&Request { input, ..*request }, state)
            })
            .collect();

        let mut strict = Judgement::of(ground.broken(Mode::Enforce));
        let mut lenient = Judgement::of(ground.broken(Mode::Observe));
        let mut isolate = request.isolate;
        for layer in &ground.layers {
            let mut judgement = layer.sift(judge(&layer.held.policy, &line, facts), &line);
            for other in &others {
                let named = judge(&layer.held.policy, other, facts);
                judgement = judgement.and(Judgement::of(only_named(named)));
            }
            if let Some(start) = &start {
                judgement = Judgement::of(not_held(judgement, start.own_network));
                if judgement.verdict > Verdict::Allow && is_own_work(&layer.held, &line, start) {
                    judgement = Judgement::of(without_effects(judgement));
                }
                let nested = layer.held.policy.settings().commands.nested;
                if nested == Nested::Deny && !start.isolated {
                    judgement = refuse_nested(judgement);
                }
            }
            isolate |= judgement.isolate && !self.satisfied_by_the_session(&layer.held);
            layer.name(&mut judgement);
            match layer.held.info.mode {
                Mode::Enforce => strict = strict.and(judgement),
                Mode::Observe => lenient = lenient.and(judgement),
            }
        }
        if self.shared.options.require_approval {
            let reasons = unapproved(&ground.primary().policy, &line, facts);
            strict = strict.and(Judgement::of(reasons));
        }
        Decided {
            isolate,
            line,
            ground,
            strict,
            lenient,
        }
    }

    /// Whether what a policy isolates may run in the world that the session has by the same policy.
    fn satisfied_by_the_session(&self, held: &LoadedPolicy) -> bool {
        let variable = self.shared.options.world.as_deref();
        held.details.world.isolated == IsolatedIn::Session && uses_worlds(held, variable)
    }

    fn facts<'a>(&'a self, request: &Request<'a>) -> Machine<'a> {
        let start = match request.origin {
            // What ran in the past had its own project, and not that of whoever asks about it today.
            Origin::Past => request.cwd,
            _ => &self.shared.options.session_start,
        };
        Machine::new(request.cwd, start, &self.shared.home, request.search_path)
            .with_home(named_home(request))
            .with_home(self.home_variable())
    }

    fn home_variable(&self) -> Option<&[u8]> {
        let variable = self.shared.options.home_variable.as_deref();
        variable.map(OsStr::as_bytes)
    }

    fn analyse(&self, request: &Request<'_>, state: &State) -> Line {
        let models = models(&state.base);
        let mut context = Context::new(models.as_ref());
        // What the shell will put for `~`, which need not be what the passwd entry says.
        let home = named_home(request).or(self.home_variable());
        context.home = Some(home.unwrap_or(bytes(&self.shared.home.user)));
        context.pwd = Some(bytes(request.cwd));
        context.variables = request.variables;
        context.aliases = request.aliases;
        match request.input {
            Input::Line(text) => analyse(text, &context),
            Input::Argv(argv) => {
                let argv: Vec<Vec<u8>> = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
                analyse_argv(&argv, &context)
            }
            Input::Tool(call) => call.line(),
        }
    }

    fn ground(
        &self,
        request: &Request<'_>,
        state: &Arc<State>,
        line: &Line,
        facts: &Machine<'_>,
        profiles_of: &dyn Fn(&Path) -> Rc<Vec<Profile>>,
    ) -> Ground {
        let trusting =
            request.origin == Origin::Prompt && self.shared.own_prompt.load(Ordering::Relaxed);
        let trust = trusting.then_some(&self.shared.trust);
        let ground = Ground::find(
            &self.shared.policies,
            trust,
            state,
            line,
            facts,
            profiles_of,
        );
        if trusting {
            self.end_session_grants_after_a_change(&ground);
        }
        ground
    }

    /// Approvals for a session end when another policy or profile governs its prompt.
    fn end_session_grants_after_a_change(&self, ground: &Ground) {
        let now = ground.here();
        let mut last = lock(&self.shared.last);
        let before = last.replace(now.clone());
        if before.is_some_and(|before| before != now)
            && let Some(session) = self.session()
            && let Err(error) = self.shared.approvals.end_session(&session)
        {
            self.shared.policies.warn_once(&error.to_string());
        }
    }

    fn question(
        &self,
        request: &Request<'_>,
        ground: &Ground,
        strict: &Judgement,
        line: &Line,
        facts: &Machine<'_>,
    ) -> Question {
        let reasons: Vec<_> = strict
            .reasons
            .iter()
            .filter(|reason| reason.verdict == Verdict::Ask)
            .cloned()
            .collect();
        Question {
            policy_id: ground.primary().info.id.clone(),
            policy_sha256: ground.fingerprint(),
            directory: facts.project_path().unwrap_or(request.cwd).to_owned(),
            environment: Meaning::default(),
            remember: approvals::proposals(line, request.text().as_deref(), &reasons),
            reasons,
        }
    }

    /// The grants that answer a question. A file that is not believed grants nothing.
    fn remembered(
        &self,
        request: &Request<'_>,
        question: &Question,
        line: &Line,
        state: &State,
        facts: &Machine<'_>,
    ) -> Option<Vec<Grant>> {
        match self.shared.approvals.list() {
            Ok(grants) if grants.is_empty() => None,
            Ok(grants) => approvals::covering(
                self.caller(),
                question,
                &grants,
                line,
                request.text().as_deref(),
                &state.base.policy,
                facts,
            ),
            Err(error) => {
                self.shared.policies.warn_once(&error.to_string());
                None
            }
        }
    }

    /// Whether a pattern that a person edited still covers what was asked about.
    pub fn try_pattern(
        &self,
        request: &Request<'_>,
        evaluation: &Evaluation,
        at: usize,
        edited: &str,
    ) -> Result<(), String> {
        let Some(question) = &evaluation.question else {
            return Ok(());
        };
        let policy = self.policy();
        let facts = self.facts(request);
        approvals::still_covers(edited, question, at, &evaluation.line, &policy, &facts)
    }

    /// Remembers a person's approval. Whether it is a person who gives it is the caller's business.
    pub fn grant(
        &self,
        question: &Question,
        what: &[Approved],
        directory: &Path,
        lasting: Lasting,
    ) -> Result<Vec<Grant>, StateError> {
        let (session, expires) = match lasting {
            Lasting::Session => (self.session(), None),
            Lasting::Seconds(seconds) => (None, seconds.map(|seconds| now() + seconds)),
        };
        if lasting == Lasting::Session && session.is_none() {
            return Ok(Vec::new());
        }
        what.iter()
            .map(|what| {
                let id = approvals::new_id();
                let grant = Grant {
                    what: what.kept(&id),
                    id,
                    policy_id: question.policy_id.clone(),
                    policy_sha256: question.policy_sha256.clone(),
                    directory: directory.to_owned(),
                    environment: question.environment.clone(),
                    given: now(),
                    expires,
                    session: session.clone(),
                };
                self.shared.approvals.add(&grant)?;
                Ok(grant)
            })
            .collect()
    }

    /// The process whose life is the session: the caller at its own prompt, else the leader of the
    /// terminal's session.
    pub fn session(&self) -> Option<Identity> {
        match self.shared.own_prompt.load(Ordering::Relaxed) {
            true => self.caller().identity(),
            false => self.caller().leader(),
        }
    }

    /// For whom it decides.
    pub fn caller(&self) -> &Caller {
        &self.shared.options.caller
    }

    /// Whether an allowed line runs in a world whose guard judges every start.
    fn in_guarded_world(&self, ground: &Ground) -> bool {
        let variable = self.shared.options.world.as_deref();
        ground.layers.iter().any(|layer| {
            layer.held.info.mode == Mode::Enforce && uses_worlds(&layer.held, variable)
        })
    }

    fn terms(&self, isolate: bool, line: &Line, ground: &Ground, facts: &Machine<'_>) -> Terms {
        let spec = || Box::new(self.combined_spec(ground, facts));
        let place = match self.placing(isolate, line, ground) {
            Placing::Isolated => Place::Isolated(spec()),
            Placing::Session => {
                let mut spec = spec();
                if self.shared.options.unattended && spec.mode == Mode::Enforce {
                    spec.home_mode = HomeMode::ReadOnly;
                }
                Place::Session(spec)
            }
            Placing::Direct => Place::Direct,
        };
        Terms { place }
    }

    fn placing(&self, isolate: bool, line: &Line, ground: &Ground) -> Placing {
        let variable = self.shared.options.world.as_deref();
        let mut layers = ground.layers.iter();
        if self.shared.in_world {
            // The world of the session around us holds it, which no world of ours inside could do better.
            Placing::Direct
        } else if isolate {
            Placing::Isolated
        } else if line.called.is_some() {
            // Whoever calls it carries it out where he is.
            Placing::Direct
        } else if layers.any(|layer| uses_worlds(&layer.held, variable)) {
            Placing::Session
        } else {
            Placing::Direct
        }
    }

    fn combined_spec(&self, ground: &Ground, facts: &Machine<'_>) -> WorldSpec {
        let other_homes = self.other_homes();
        let spec = |held: &LoadedPolicy| world_spec(held, &self.shared.home, &other_homes, facts);
        ground
            .layers
            .iter()
            .filter(|layer| !layer.primary)
            .fold(spec(ground.primary()), |terms, layer| {
                terms.narrowed(&spec(&layer.held))
            })
    }

    /// The terms of a world for the session's own policies here.
    pub fn world_spec(&self, facts: &Machine<'_>) -> WorldSpec {
        let state = self.state();
        self.combined_spec(&Ground::of_session(&state), facts)
    }
}

/// The variable `HOME` of the shell that will run the line, where it was told.
fn named_home<'a>(request: &Request<'a>) -> Option<&'a [u8]> {
    let named = request.variables.iter().find(|(name, _)| name == b"HOME");
    named.map(|(_, value)| value.as_slice())
}

/// Decoded tool models, and of which policy they are.
type Decoded = (Arc<PolicyInfo>, Rc<Cached<Policy>>);

thread_local! {
    /// The tool models that this thread has used last.
    static MODELS: RefCell<Option<Decoded>> = const { RefCell::new(None) };
}

/// The tool models of a policy. Decoding them costs more than judging, so a thread keeps what it used.
fn models(held: &LoadedPolicy) -> Rc<Cached<Policy>> {
    MODELS.with_borrow_mut(|kept| match kept {
        Some((policy, models)) if Arc::ptr_eq(policy, &held.info) => models.clone(),
        _ => {
            let models = Rc::new(Cached::new(held.policy.clone()));
            *kept = Some((held.info.clone(), models.clone()));
            models
        }
    })
}

impl Models for Broker {
    fn tool(&self, name: &[u8]) -> Option<Tool> {
        self.state().base.policy.tool(name)
    }
}

/// The reasons that name something, without those that say that nothing named it.
fn only_named(judgement: Judgement) -> Vec<Reason> {
    const UNNAMED: [&str; 4] = [
        "commands.allowed",
        "commands.default",
        "commands.on_unparsed",
        "approval.required",
    ];
    let mut reasons = judgement.reasons;
    reasons.retain(|reason| {
        reason.verdict > Verdict::Allow && !UNNAMED.contains(&reason.rule.list.as_str())
    });
    for reason in &mut reasons {
        // Its number counts in another line.
        reason.invocation = None;
    }
    reasons
}

/// The reasons without those that the world around a start holds by itself. Its files and hosts are
/// known there, where the words of a compiler's helpers are only guessed at.
fn not_held(judgement: Judgement, own_network: bool) -> Vec<Reason> {
    let held = |list: &str| list.starts_with("fs.") || own_network && list.starts_with("net.");
    let mut reasons = judgement.reasons;
    reasons.retain(|reason| !held(&reason.rule.list));
    reasons
}

/// Whether a program is started by one that starts it as part of its own work.
fn is_own_work(held: &LoadedPolicy, line: &Line, start: &Start<'_>) -> bool {
    let [only] = line.invocations.as_slice() else {
        return false;
    };
    let name = only.argv.first().and_then(|word| word.value());
    let Some((name, by)) = name.zip((start.by)()) else {
        return false;
    };
    let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let models = models(held);
    let own = models.shared(by.as_bytes());
    own.is_some_and(|tool| tool.own_work.iter().any(|own| own.as_bytes() == name))
}

/// The reasons without questions and isolation by effects, which were judged with the tool whose work it is.
fn without_effects(judgement: Judgement) -> Vec<Reason> {
    let mut reasons = judgement.reasons;
    reasons.retain(|reason| {
        reason.verdict == Verdict::Deny || !reason.rule.list.starts_with("effects.")
    });
    reasons
}

/// The judgement on a start below a line under a policy that wants what is isolated on lines of its own.
fn refuse_nested(judgement: Judgement) -> Judgement {
    let mut reasons = judgement.reasons;
    // What a program starts for its work is seldom described, and is contained where it is already.
    reasons.retain(|reason| {
        reason.verdict != Verdict::Isolate || reason.rule.pattern != "exec:unknown"
    });
    for reason in &mut reasons {
        if reason.verdict == Verdict::Isolate {
            reason.verdict = Verdict::Deny;
            reason.rule.reason = Some(
                "the policy runs this in a world of its own: run it as its own line".to_owned(),
            );
        }
    }
    Judgement::of(reasons)
}

fn deciding(judgement: &Judgement) -> Option<RuleRef> {
    judgement.deciding().map(|reason| reason.rule.clone())
}

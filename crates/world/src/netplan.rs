//! The seam between making a world and its network: `egress::plan` fills in a [`NetPlan`], the
//! child runs it inside the new namespace (`NetPlan::run`, then `Made::send`), the owner takes
//! the sockets with `NetPlan::receive` and starts the gate with them.

pub use substrate_init::netplan::{Action, Made, NetFds, NetPlan, Role, Step, StepError, When};

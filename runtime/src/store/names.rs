//! Names of transactions: a closed set, so that logs, metrics and fail points can use them as labels.

macro_rules! tx_names {
    ($($(#[$doc:meta])* $name:ident => $label:literal),* $(,)?) => {
        /// Which transaction runs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum TxName {
            $($(#[$doc])* $name),*
        }

        impl TxName {
            /// Every name, for labels and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The label.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label),* }
            }
        }
    };
}

tx_names! {
    /// Schema: bootstrap, steps, verification.
    Migrate => "migrate",
    /// Take, renew or give back a named lease.
    Lease => "lease",
    /// A captured source.
    Capture => "capture",
    /// An explicit request: enqueue or join.
    Flush => "flush",
    /// Take work.
    Claim => "claim",
    /// Renew leases of running work.
    Heartbeat => "heartbeat",
    /// End of a run with its domain write.
    Finish => "finish",
    /// A window of a run that goes on.
    WindowCommit => "window_commit",
    /// A failed run.
    Fail => "fail",
    /// A run given back.
    Release => "release",
    /// Leases that are over.
    Recover => "recover",
    /// An operator's cancel.
    Cancel => "cancel",
    /// An operator's retry.
    Retry => "retry",
    /// An edit by a client.
    Edit => "edit",
    /// Input of a run.
    Load => "load",
    /// Operations for a client.
    Operations => "operations",
    /// Memory for a client.
    MemoryRead => "memory_read",
    /// A request counted against its principal's limit.
    RateLimit => "rate_limit",
    /// Which spans attempts are.
    Trace => "trace",
    /// What model calls cost.
    Usage => "usage",
    /// Health.
    Ping => "ping",
    /// A scope admitted by a scan, or taken up because it is owed.
    Admit => "admit",
    /// Begin, place or end of a scan, and what its pages read.
    Scan => "scan",
    /// Dirty marks that were lost.
    Reconcile => "reconcile",
    /// Members of the deployment.
    Members => "members",
    /// The mode of supervision.
    SwitchMode => "switch_mode",
    /// Rows that are no longer needed.
    Maintain => "maintain",
    /// Queue gauges.
    Gauges => "gauges",
}

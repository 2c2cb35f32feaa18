//! The closed sets that label metrics.

use powercontext_core::fail::FailCode;

/// Label of a kind of work that this build does not know.
pub(super) const KIND_OTHER: &str = "other";
/// Category of an attempt that ended without an error.
pub(super) const CATEGORY_NONE: &str = "none";

/// Every category of a failure, and none.
pub(super) fn categories() -> Vec<&'static str> {
    let mut all: Vec<_> = FailCode::ALL.map(FailCode::category).into();
    all.push(CATEGORY_NONE);
    all.sort_unstable();
    all.dedup();
    all
}

/// What became of a request for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Enqueue {
    /// It made an item.
    Created,
    /// A live item serves it.
    Joined,
}

impl Enqueue {
    /// Every outcome.
    pub const ALL: [Self; 2] = [Self::Created, Self::Joined];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Joined => "joined",
        }
    }
}

/// State of an item that occupies its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LiveState {
    /// Waits for its first attempt.
    Queued,
    /// Is being run.
    Running,
    /// Waits for another attempt.
    RetryWait,
    /// Is being run, and asked to end.
    Cancelling,
    /// Waits for an operator.
    Failed,
}

impl LiveState {
    /// Every live state.
    pub const ALL: [Self; 5] = [
        Self::Queued,
        Self::Running,
        Self::RetryWait,
        Self::Cancelling,
        Self::Failed,
    ];

    /// The stored name, which is also the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::RetryWait => "retry_wait",
            Self::Cancelling => "cancelling",
            Self::Failed => "failed",
        }
    }

    /// The live state of this stored name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// How a request reached the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// By HTTP.
    Http,
}

impl Transport {
    /// Every transport.
    pub const ALL: [Self; 1] = [Self::Http];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestOutcome {
    /// Answered as asked.
    Success,
    /// Answered with an error.
    Failure,
    /// Nobody waited for the answer.
    Cancelled,
}

impl RequestOutcome {
    /// Every outcome.
    pub const ALL: [Self; 3] = [Self::Success, Self::Failure, Self::Cancelled];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Cancelled => "cancelled",
        }
    }

    /// What an answer with this status is.
    pub const fn of_status(status: u16) -> Self {
        if status < 400 { Self::Success } else { Self::Failure }
    }
}

macro_rules! operations {
    ($($variant:ident $label:literal $method:literal $path:literal,)+) => {
        /// Operation of the HTTP surface, by its id. Health and metrics are not counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum HttpOperation {
            $(#[doc = concat!("`", $method, " ", $path, "`")] $variant,)+
            /// No operation has this method and path.
            Unmatched,
        }

        impl HttpOperation {
            /// Every operation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+ Self::Unmatched];

            /// The label: the operation's id.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)+
                    Self::Unmatched => "unmatched",
                }
            }

            /// The operation of a method and a route's template, such as `/v1/operations/{operation_id}`.
            pub fn of(method: &str, template: &str) -> Self {
                match (method, template) {
                    $(($method, $path) => Self::$variant,)+
                    _ => Self::Unmatched,
                }
            }
        }
    };
}

operations! {
    GetCapabilities "get_capabilities" "GET" "/v1/capabilities",
    CaptureContentSource "capture_content_source" "POST" "/v1/sources/content",
    FlushMemory "flush_memory" "POST" "/v1/memory/flush",
    RememberMemory "remember_memory" "POST" "/v1/memory/remember",
    SearchMemory "search_memory" "POST" "/v1/memory/search",
    ListMemoryEntries "list_memory_entries" "POST" "/v1/memory/entries/list",
    GetMemoryEntry "get_memory_entry" "POST" "/v1/memory/entries/get",
    ReviseMemoryEntry "revise_memory_entry" "POST" "/v1/memory/entries/revise",
    RetireMemoryEntry "retire_memory_entry" "POST" "/v1/memory/entries/retire",
    ListMemoryChanges "list_memory_changes" "POST" "/v1/memory/changes",
    ListOperations "list_operations" "GET" "/v1/operations",
    GetOperation "get_operation" "GET" "/v1/operations/{operation_id}",
    CancelOperation "cancel_operation" "POST" "/v1/operations/{operation_id}/cancel",
    RetryOperation "retry_operation" "POST" "/v1/operations/{operation_id}/retry",
}

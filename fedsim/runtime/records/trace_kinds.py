"""What the run itself writes into the trace; transfers and jobs are the bus's and the engine's."""

from fedsim.clock import RecordKind

DISPATCH = RecordKind("dispatch", ("client", "dispatch", "round", "exchange", "turn"))
DROP = RecordKind("drop", ("client", "dispatch", "cause"))
LATE = RecordKind("late", ("client", "dispatch"))
REJECT = RecordKind("reject", ("client", "dispatch", "reason"))
MERGE = RecordKind("merge", ("round", "exchange", "version", "clients", "dispatches"))
ROUND_END = RecordKind("round_end", ("round", "asked", "merged"))
EVALUATION = RecordKind("evaluation", ("round", "clients", "personal_mean", "global"))

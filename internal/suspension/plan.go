package suspension

// State is how far a process is, as the driver tells. The numbers are the driver's.
type State int

// The states of a process.
const (
	// Unused is a process that does not use the driver: it has nothing on a GPU.
	Unused State = iota - 1
	// Running is one whose calls go on.
	Running
	// Locked is one whose calls wait, with its memory on the GPUs.
	Locked
	// Saved is one whose memory is on the host, with nothing on a GPU.
	Saved
	// Failed is one whose calls wait for ever: it has to be ended.
	Failed
)

// Goal is where the processes of a share shall be.
type Goal int

// The goals.
const (
	In Goal = iota
	Out
)

// Process is one process of a share, as it was just found.
type Process struct {
	PID   int
	State State
	// Stopped is one that does not run (SIGSTOP), and so answers no question but for its state.
	Stopped bool
}

// Act is what the driver is asked to do with a process.
type Act int

// The acts, and the state from which each one leads and to which.
const (
	Lock    Act = iota // Running to Locked
	Save               // Locked to Saved
	Restore            // Saved to Locked
	Unlock             // Locked to Running
)

// String implements fmt.Stringer.
func (a Act) String() string { return [...]string{"lock", "save", "restore", "unlock"}[a] }

// Of is the state in which a process is before the act.
func (a Act) Of() State { return [...]State{Running, Locked, Saved, Locked}[a] }

// To is the state to which the act leads.
func (a Act) To() State { return [...]State{Locked, Saved, Locked, Running}[a] }

// Plan is what to do next. Exactly one of Done, GiveUp, Room, Wait and Act with PIDs says so.
type Plan struct {
	// Act is to be done with all of PIDs, in any order; the processes are looked at again then.
	Act  Act
	PIDs []int
	// Done is set where the goal is reached.
	Done bool
	// GiveUp is why the processes cannot leave: the goal becomes In. Empty while they can.
	GiveUp string
	// Room is set where nothing can be done before there is room on the GPUs for all that is saved.
	Room bool
	// Wait is set where a stopped process has to go on first.
	Wait bool
}

// Why processes cannot leave.
const (
	BecauseFailed  = "the driver lost one of its processes"
	BecauseStopped = "one of its processes is stopped, and answers nobody"
)

// Next is the next step towards a goal. Room tells whether all that is saved has room on the GPUs, by the agent's ledger
// and by the driver. Nothing is saved before all are locked, and nothing unlocked before all are restored: a process that
// ran while another is away could wait for it, or work on memory that they share.
func Next(goal Goal, room bool, processes []Process) Plan {
	if goal == Out {
		return leave(processes)
	}
	return comeBack(room, processes)
}

func leave(processes []Process) Plan {
	for _, p := range processes {
		switch {
		case p.State == Failed:
			return Plan{GiveUp: BecauseFailed}
		case p.Stopped && (p.State == Running || p.State == Locked):
			return Plan{GiveUp: BecauseStopped}
		}
	}
	for _, act := range []Act{Lock, Save} {
		if pids := in(act.Of(), processes); len(pids) > 0 {
			return Plan{Act: act, PIDs: pids}
		}
	}
	return Plan{Done: true}
}

func comeBack(room bool, processes []Process) Plan {
	for _, act := range []Act{Restore, Unlock} {
		pids := in(act.Of(), processes)
		if len(pids) == 0 {
			continue
		}
		if act == Restore && !room {
			return Plan{Room: true}
		}
		if able := awake(act.Of(), processes); len(able) > 0 {
			return Plan{Act: act, PIDs: able}
		}
		return Plan{Wait: true}
	}
	return Plan{Done: true}
}

// in are the processes in a state.
func in(s State, processes []Process) (pids []int) {
	for _, p := range processes {
		if p.State == s {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// awake are those of them that answer.
func awake(s State, processes []Process) (pids []int) {
	for _, p := range processes {
		if p.State == s && !p.Stopped {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

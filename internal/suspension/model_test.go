package suspension_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/suspension"
)

// world is a GPU with a share's processes and others', and a driver as it is documented.
type world struct {
	t         *testing.T
	random    *rand.Rand
	capacity  int
	others    int // what other shares have of the GPU
	processes []*process
	next      int
	// goal and reserved are the agent's record, which outlives it; other shares may have whatever is not reserved.
	goal     suspension.Goal
	reserved int
	acts     map[suspension.Act]int
}

type process struct {
	suspension.Process
	bytes   int // what it has on the GPU, or had
	content uint64
	expect  uint64
}

func (w *world) used() (bytes int) {
	for _, p := range w.processes {
		if p.State == suspension.Running || p.State == suspension.Locked {
			bytes += p.bytes
		}
	}
	return bytes
}

func (w *world) needed() (bytes int) {
	for _, p := range w.processes {
		if p.State != suspension.Failed && p.State != suspension.Unused {
			bytes += p.bytes
		}
	}
	return bytes
}

// do asks the driver, which may refuse a lock, and whose answer may be lost with whoever asked.
func (w *world) do(act suspension.Act, p *process) {
	if p.State != act.Of() {
		w.t.Fatalf("%s of a process in state %d", act, p.State)
	}
	if p.Stopped {
		w.t.Fatalf("%s of a stopped process, which does not answer", act)
	}
	w.acts[act]++
	if act == suspension.Lock && w.random.IntN(10) == 0 {
		return
	}
	if act == suspension.Restore && w.used()+p.bytes+w.others > w.capacity {
		w.t.Fatalf("a process is restored where there is no room: it is lost")
	}
	p.State = act.To()
}

// step is one look and one act of the agent. It may be cut short at any point, and the next agent begins with a look.
func (w *world) step() suspension.Plan {
	var seen []suspension.Process
	for _, p := range w.processes {
		seen = append(seen, p.Process)
	}
	room := w.reserved >= w.needed() && w.capacity-w.others >= w.needed()
	plan := suspension.Next(w.goal, room, seen)
	switch {
	case plan.GiveUp != "":
		w.goal = suspension.In
	case plan.Done && w.goal == suspension.Out:
		w.reserved = 0
	case plan.Room:
		w.reserved = w.needed()
	}
	w.judge(plan)
	for _, pid := range plan.PIDs {
		if w.random.IntN(6) == 0 {
			break // helper or agent is killed here
		}
		w.do(plan.Act, w.processes[slices.IndexFunc(w.processes, func(p *process) bool { return p.PID == pid })])
	}
	return plan
}

// judge fails where a process could run while another is not there.
func (w *world) judge(plan suspension.Plan) {
	if len(plan.PIDs) == 0 {
		return
	}
	for _, p := range w.processes {
		if plan.Act == suspension.Save && p.State == suspension.Running {
			w.t.Fatal("one is saved while another runs")
		}
		if plan.Act == suspension.Unlock && p.State == suspension.Saved {
			w.t.Fatal("one is unlocked while another is away")
		}
	}
}

// befall lets something happen that nobody planned.
func (w *world) befall() {
	switch w.random.IntN(8) {
	case 0:
		if len(w.processes) < 5 {
			w.born()
		}
	case 1:
		if i := w.any(); i >= 0 {
			w.processes = slices.Delete(w.processes, i, i+1)
		}
	case 2:
		if i := w.any(); i >= 0 {
			w.processes[i].Stopped = !w.processes[i].Stopped
		}
	case 3:
		w.goal = suspension.Out
	case 4:
		w.goal = suspension.In
	case 5:
		w.others = w.random.IntN(max(1, w.capacity-max(w.reserved, w.used())+1))
	case 6:
		for _, p := range w.processes {
			if p.State == suspension.Running {
				p.content = w.random.Uint64()
				p.expect = p.content
			}
		}
	case 7:
		if i := w.any(); i >= 0 && w.random.IntN(20) == 0 && w.processes[i].State == suspension.Locked {
			w.processes[i].State = suspension.Failed
		}
	}
}

func (w *world) any() int { return w.random.IntN(len(w.processes)+1) - 1 }

func (w *world) born() {
	w.next++
	state := suspension.Unused
	if w.used() < w.reserved && w.random.IntN(4) > 0 {
		state = suspension.Running
	}
	w.processes = append(w.processes, &process{Process: suspension.Process{PID: w.next, State: state}, bytes: 1, content: uint64(w.next), expect: uint64(w.next)})
}

// settle lets nothing befall any more: the goal has to be reached, once others leave the room.
func (w *world) settle(goal suspension.Goal) {
	w.goal, w.others = goal, 0
	for _, p := range w.processes {
		p.Stopped = false
	}
	for range 500 {
		if plan := w.step(); plan.Done {
			return
		}
	}
	w.t.Fatalf("no way forward to goal %d: %+v", goal, w.processes)
}

// TestModel lets agents and helpers be killed at every step while processes join, die, stop and fail, and others take
// what room is left.
func TestModel(t *testing.T) {
	acts := map[suspension.Act]int{}
	for seed := range uint64(3000) {
		w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), capacity: 8, reserved: 5, acts: acts}
		for range 1 + w.random.IntN(4) {
			w.born()
		}
		for range 200 {
			w.befall()
			w.step()
		}
		w.settle(suspension.Goal(w.random.IntN(2)))
		w.settle(suspension.In)
		for _, p := range w.processes {
			if p.State != suspension.Running && p.State != suspension.Unused && p.State != suspension.Failed || p.content != p.expect {
				t.Fatalf("seed %d: a process does not run as before: %+v", seed, p)
			}
		}
	}
	for act := suspension.Lock; act <= suspension.Unlock; act++ {
		if acts[act] < 5000 {
			t.Errorf("only %d times %s", acts[act], act)
		}
	}
}

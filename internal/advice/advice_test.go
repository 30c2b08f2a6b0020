package advice

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/history"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

const gib = 1 << 30

// machine is a record of one with GPUs of 80 GiB.
func machine(name string, gpus int) history.Record {
	r := history.Record{Version: 1, Kind: history.KindNode, Node: name, From: noon, At: noon, Began: noon}
	for i := range gpus {
		r.GPUs = append(r.GPUs, history.GPU{Index: i, UUID: fmt.Sprintf("%s-%d", name, i), Model: "A100", Capacity: 80 * gib})
	}
	return r
}

// run is the record of a share from an hour on, for some hours.
func run(id, user, command string, gpu, from, hours int, granted, peak uint64, cores int, busy float64) history.Record {
	r := history.Record{
		Version: 1, Kind: history.KindEnd, Node: "lab1", ID: id, Name: id, User: user, From: noon.Add(time.Duration(from) * time.Hour), GPU: gpu, UUID: fmt.Sprintf("lab1-%d", gpu),
		Backend: "slice", Granted: granted, Cores: cores, Peak: peak,
	}
	r.At, r.Began = r.From.Add(time.Duration(hours)*time.Hour), r.From
	r.Used = uint64(busy / 100 * float64(r.Wall()))
	if command != "" {
		r.Command = strings.Fields(command)
	}
	return r
}

func TestProposals(t *testing.T) {
	refused := run("r", "ada", "python big.py", 0, 0, 3, 40*gib, 39*gib, 50, 20)
	refused.Refused = 3
	records := []history.Record{
		machine("lab1", 2),
		run("a", "ada", "python train.py --lr 1", 0, 0, 10, 40*gib, 10*gib, 0, 30), run("b", "ada", "/usr/bin/python train.py --lr 2", 0, 12, 12, 40*gib, 12*gib, 0, 33),
		refused, run("small", "bob", "", 1, 0, 1, 8*gib, gib/4, 10, 0), run("unused", "bob", "", 1, 2, 1, 8*gib, 0, 10, 1),
		run("huge", "eve", "x", 1, 4, 1, 80*gib, 79*gib, 100, 99.9),
	}
	want := []string{
		"ada/python big.py 43Gi 20 little", "ada/python train.py 13.25Gi 35 some", "bob/small 0.75Gi 10 little", "bob/unused 8Gi 5 little", "eve/x 80Gi 100 little",
	}
	for i, p := range Propose(records) {
		got := fmt.Sprintf("%s/%s %gGi %d %s", p.Owner, p.What, float64(p.Memory)/gib, p.Cores, p.Sure)
		if got != want[i] {
			t.Errorf("%s, want %s: %+v", got, want[i], p)
		}
	}
}

// Shares that divide a GPU by weight want more of it than there is, and are proposed no guaranteed cores while they have enough.
func TestWeightedShares(t *testing.T) {
	weighted := func(id string, used, held float64) history.Record {
		r := run(id, "ada", id, 0, 0, 4, 20*gib, 10*gib, 0, used)
		r.Policy, r.Held = "weighted", uint64(held/100*float64(r.Wall()))
		return r
	}
	records := []history.Record{machine("lab1", 4), weighted("a", 40, 60), weighted("b", 55, 45), weighted("starved", 5, 90), weighted("alone", 80, 0)}
	proposals := Propose(records)
	for i, want := range []string{"a 0 100: no guaranteed", "alone 0 80", "b 0 100: no guaranteed", "starved 95 95: needs guaranteed"} {
		p := proposals[i]
		got := fmt.Sprintf("%s %d %.0f %s", p.What, p.Cores, *p.Wanted, strings.Join(p.Notes, ""))
		if figures, note, _ := strings.Cut(want, ": "); !strings.HasPrefix(got, figures) || !strings.Contains(got, note) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	pair := append(slices.Clone(records[:3]), weighted("c", 30, 60))
	as, err := Replay(t.Context(), pair, nil)
	if err != nil {
		t.Fatal(err)
	}
	if with, err := Replay(t.Context(), pair, Propose(pair)); err != nil || with.Needed > as.Needed {
		t.Errorf("%v: %+v, as granted %+v", err, with, as)
	}
}

func TestSureness(t *testing.T) {
	records := []history.Record{}
	for i := range 5 {
		records = append(records, run(fmt.Sprint(i), "ada", "x", 0, 10*i, 4, 8*gib, gib, 0, 10))
	}
	if p := Propose(records); len(p) != 1 || p[0].Runs != 5 || p[0].Hours != 20 || p[0].Sure != Much {
		t.Errorf("%+v", p)
	}
}

// Two shares with a GPU each fit on one with what they used.
func TestReplayFreesGPUs(t *testing.T) {
	records := []history.Record{
		machine("lab1", 4), run("a", "ada", "a", 0, 0, 5, 60*gib, 10*gib, 60, 20), run("b", "bob", "b", 1, 1, 5, 60*gib, 20*gib, 60, 30),
		run("later", "bob", "b", 1, 6, 5, 60*gib, 20*gib, 60, 30), run("lasts", "eve", "c", 2, 2, 3, 30*gib, 5*gib, 60, 10),
	}
	records[4].Kind = history.KindHour // it lives
	as, err := Replay(t.Context(), records, nil)
	if err != nil || as != (Outcome{Machines: 1, GPUs: 4, Shares: 4, Needed: 3, Free: 1}) {
		t.Errorf("%v, %+v", err, as)
	}
	with, err := Replay(t.Context(), records, Propose(records))
	if err != nil || with != (Outcome{Machines: 1, GPUs: 4, Shares: 4, Needed: 1, Free: 3}) {
		t.Errorf("%v, %+v", err, with)
	}
}

// Machines of several files are one cluster, and a whole GPU or one that no machine lists stays what it was.
func TestReplayOfACluster(t *testing.T) {
	whole, strange := run("w", "ada", "a", 0, 0, 5, 80*gib, 10*gib, 0, 20), run("s", "bob", "b", 7, 0, 5, 8*gib, gib, 0, 20)
	whole.Whole, whole.UUID, whole.Node, strange.Node = true, "lab2-1", "lab2", "lab3"
	got, err := Replay(t.Context(), []history.Record{machine("lab1", 1), machine("lab2", 2), whole, strange}, nil)
	if err != nil || got.Machines != 3 || got.GPUs != 4 || got.Needed != 2 || got.Unplaced != 0 {
		t.Errorf("%v, %+v", err, got)
	}
	if got, err := Replay(t.Context(), nil, nil); err != nil || got != (Outcome{}) {
		t.Errorf("%v, %+v", err, got)
	}
}

// history at random.
func someHistory(r *rand.Rand) []history.Record {
	records := []history.Record{machine("lab1", 4)}
	for i := range 1 + r.IntN(40) {
		granted := uint64(1+r.IntN(60)) * gib
		one := run(fmt.Sprint(i), string(rune('a'+r.IntN(3))), []string{"", "x", "python y.py"}[r.IntN(3)], r.IntN(4), r.IntN(100), r.IntN(20), granted, r.Uint64N(granted+1), r.IntN(101), float64(r.IntN(101)))
		one.Refused, one.Whole = uint64(r.IntN(2)*r.IntN(3)), r.IntN(8) == 0
		if r.IntN(5) == 0 {
			one.Kind = history.KindHour
		}
		records = append(records, one)
	}
	return records
}

// A proposal is never below what was used, and stays within the GPU.
func TestNeverBelowThePeak(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		records := someHistory(r)
		most := map[Workload]uint64{}
		for i := range records[1:] {
			one := &records[1+i]
			most[workloadOf(one)] = max(most[workloadOf(one)], one.Peak)
		}
		for _, p := range Propose(records) {
			if p.Memory < most[p.Workload] || p.Peak != most[p.Workload] || p.Memory > 80*gib || p.Cores < 0 || p.Cores > 100 {
				t.Fatalf("%+v, most used %d", p, most[p.Workload])
			}
		}
	}
}

// Proposals that are what was granted change nothing.
func TestReplayOfTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		records := someHistory(r)
		var same []Proposal
		for i := range records[1:] {
			one := &records[1+i]
			one.Whole, one.Command = false, nil // each share is a workload
			same = append(same, Proposal{Workload: workloadOf(one), Memory: one.Granted, Cores: one.Cores})
		}
		as, err := Replay(t.Context(), records, nil)
		if err != nil {
			t.Fatal(err)
		}
		with, err := Replay(t.Context(), records, same)
		if err != nil || as != with {
			t.Fatalf("%v, %+v, with the same %+v", err, as, with)
		}
		if as.Needed > as.GPUs || as.Needed+as.Free != as.GPUs || as.Unplaced > as.Shares {
			t.Fatalf("%+v", as)
		}
	}
}

// A GPU counts while it has a share, and no longer.
func TestReplayCountsWhatIsUsedAtOnce(t *testing.T) {
	small := machine("lab2", 1)
	small.GPUs[0].Capacity = 20 * gib
	first, second := run("a", "ada", "a", 0, 0, 2, 15*gib, gib, 0, 20), run("b", "ada", "b", 0, 3, 2, 60*gib, gib, 0, 20)
	first.Node, first.UUID = "lab2", "lab2-0"
	got, err := Replay(t.Context(), []history.Record{machine("lab1", 1), small, first, second}, nil)
	if err != nil || got != (Outcome{Machines: 2, GPUs: 2, Shares: 2, Needed: 1, Free: 1}) {
		t.Errorf("%v, %+v", err, got)
	}
}

// A file may name any number of machines: more work than anybody waits for is refused, and a replay ends when it is told to.
func TestReplayIsBounded(t *testing.T) {
	var records []history.Record
	for i := range 15_000 {
		r := run(fmt.Sprint("s", i), "ada", "x", 0, i, 1, gib, gib, 10, 5)
		r.Node, r.UUID = fmt.Sprint("n", i), fmt.Sprint("g", i)
		records = append(records, r)
	}
	if _, err := Replay(t.Context(), records, nil); !errors.Is(err, ErrWork) {
		t.Errorf("%v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Replay(ended, records[:10], nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

package history

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestSums(t *testing.T) {
	first, second, other, many := example(), example(), example(), example()
	first.Kind, first.Ended, first.From, first.At = KindHour, "", noon.Add(-time.Hour), noon
	other.User, other.Name, other.ID, other.UUID, other.Kind = "bob", "serve", "t8", "GPU-2", KindHour
	many.Kind, many.Shares, many.Together = KindMany, 700, uint64(time.Hour)
	records := []Record{{Kind: KindNode, Node: "lab1"}, first, second, other, many}
	for by, want := range map[Column]int{ByDay: 1, ByNode: 1, ByUser: 2, ByShare: 3, ByCommand: 1, ByGPU: 2} {
		if rows := Sum(records, []Column{by}, time.UTC); len(rows) != want {
			t.Errorf("by %s: %+v", by, rows)
		}
	}
	rows := Sum(records, []Column{ByUser}, time.UTC)
	ada := rows[0]
	if ada.Shares != 701 || ada.Running != 0 || ada.Wall != uint64(2*time.Hour+30*time.Minute) || ada.Used != 18e11 || ada.Refused != 6 || ada.Peak != 5<<30 || ada.Ended == "" {
		t.Errorf("%+v", ada)
	}
	if bob := rows[1]; bob.Shares != 1 || bob.Running != 1 {
		t.Errorf("%+v", bob)
	}
}

// Whatever rows are made by, they add up to the same.
func TestSumsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var records []Record
	for range 500 {
		one := example()
		one.User, one.Name, one.ID = string(rune('a'+r.IntN(5))), string(rune('a'+r.IntN(9))), string(rune('a'+r.IntN(30)))
		one.From = noon.Add(time.Duration(r.IntN(1000)) * time.Hour)
		one.At = one.From.Add(time.Duration(r.IntN(3600)) * time.Second)
		one.Used, one.Refused = uint64(r.IntN(1e9)), uint64(r.IntN(3))
		records = append(records, one)
	}
	whole := Sum(records, nil, time.UTC)[0]
	for _, c := range Columns {
		var f Figures
		wall := uint64(0)
		for _, row := range Sum(records, []Column{c}, time.UTC) {
			f.Add(row.Figures)
			wall += row.Wall
		}
		if f != whole.Figures || wall != whole.Wall {
			t.Errorf("by %s: %+v and %d, whole %+v", c, f, wall, whole)
		}
	}
}

// In whatever order records are read, a row tells of the end that came last, and sorted they are in the order of time.
func TestOrderOfTime(t *testing.T) {
	end := func(id, ended string, from, at time.Duration) Record {
		r := example()
		r.ID, r.Kind, r.Ended, r.From, r.At = id, KindEnd, ended, noon.Add(from), noon.Add(at)
		return r
	}
	first, last := end("t1", "its last process is gone", 0, time.Minute), end("t2", "ada stopped it (divvy stop)", time.Second, time.Hour)
	hour := end("t3", "", 0, 2*time.Hour)
	hour.Kind = KindHour
	for _, records := range [][]Record{{first, last, hour}, {hour, last, first}, {last, hour, first}} {
		if row := Sum(records, nil, time.UTC)[0]; row.Ended != last.Ended || row.Running != 1 {
			t.Errorf("%+v", row)
		}
		Sort(records)
		if records[0].ID != "t1" || records[1].ID != "t3" || records[2].ID != "t2" {
			t.Errorf("%s, %s, %s", records[0].ID, records[1].ID, records[2].ID)
		}
	}
}

func TestWorkload(t *testing.T) {
	for command, want := range map[string]string{
		"":                                  "",
		"/usr/bin/python3 -u train.py --lr": "python3 train.py",
		"python /home/ada/x/train.py":       "python train.py",
		"python -m vllm.entrypoints --port": "python -m vllm.entrypoints",
		"torchrun --nproc 2 train.py":       "torchrun train.py",
		"nvidia-smi":                        "nvidia-smi",
		"./bench -m":                        "bench",
		"java -jar a.jar":                   "java -jar a.jar",
	} {
		if got := Workload(strings.Fields(command)); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}

package cli

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

const whyUID = 1001

// explained is a listing with a share that has an A100 beside another share.
func explained(edit func(l *control.Listing, t *control.Tenant, s *control.Share)) (*control.Listing, *control.Tenant) {
	const gib = 1 << 30
	at := time.Date(2026, 3, 1, 12, 30, 0, 0, time.Local)
	l := &control.Listing{
		Time: at,
		GPUs: []control.GPU{{Index: 0, UUID: "GPU-00", Name: "NVIDIA A100 80GB PCIe", Total: 80 * gib, Capacity: 79 * gib, Granted: 40 * gib, Cores: 60}},
		Tenants: []control.Tenant{
			{
				ID: "1", Name: "train", User: "ada", UID: whyUID, Created: at.Add(-time.Hour), Command: []string{"python", "train.py"},
				Shares: []control.Share{{
					UUID: "GPU-00", Limit: 8 * gib, Used: 6 * gib, Observed: new(uint64(6 * gib)), Peak: 7 * gib, Cores: 30,
					Policy: v1alpha1.PolicyFixed, Weight: 1, Class: v1alpha1.ClassOnline, Backend: v1alpha1.BackendSlice,
					Time: &control.Time{Limited: true, Percent: new(29.9), Used: uint64(15 * time.Minute)},
				}},
			},
			{ID: "2", Name: "serve", User: "kim", UID: 1002, Created: at.Add(-time.Hour), Shares: []control.Share{{
				UUID: "GPU-00", Limit: 32 * gib, Cores: 30, Policy: v1alpha1.PolicyBurst, MaxCores: 100, Class: v1alpha1.ClassOnline,
				Backend: v1alpha1.BackendSlice, Time: &control.Time{Limited: true, Percent: new(61.4)},
			}}},
		},
	}
	t := &l.Tenants[0]
	if edit != nil {
		edit(l, t, &t.Shares[0])
	}
	return l, t
}

// Each reason why a share is slow or out of memory is told with what would help.
func TestWhy(t *testing.T) {
	const gib = 1 << 30
	refused := func(count, byGPU uint64) *control.Refusals {
		r := &control.Refusals{
			Count: count, ByGPU: byGPU, Largest: 3 * gib, Last: 2 * gib,
			At: time.Date(2026, 3, 1, 12, 29, 0, 0, time.Local), By: control.RefuserLimit,
		}
		if byGPU > 0 {
			r.By = control.RefuserGPU
		}
		return r
	}
	heldBack := func(s *control.Share, total, yielded time.Duration) {
		s.Time.HeldBackTotal, s.Time.Yielded, s.Time.HeldBackPercent = uint64(total), uint64(yielded), 71.2
	}
	for name, edit := range map[string]func(l *control.Listing, t *control.Tenant, s *control.Share){
		"well":  nil,
		"limit": func(_ *control.Listing, _ *control.Tenant, s *control.Share) { s.Refusals = refused(1, 0) },
		"no-room": func(l *control.Listing, _ *control.Tenant, s *control.Share) {
			s.Refusals, l.GPUs[0].Granted = refused(3, 0), 79*gib
		},
		"too-much": func(_ *control.Listing, _ *control.Tenant, s *control.Share) {
			s.Refusals = refused(3, 0)
			s.Refusals.Largest = math.MaxUint64
		},
		"full": func(l *control.Listing, _ *control.Tenant, s *control.Share) {
			s.Refusals, l.GPUs[0].Granted, l.GPUs[0].Used = refused(4, 3), 100*gib, new(uint64(80*gib))
			l.Outside = []control.Outside{{PID: 77, User: "eve", Command: "x\x1b[2J", UUID: "GPU-00", Used: new(uint64(30 * gib))}}
		},
		"idle": func(_ *control.Listing, _ *control.Tenant, s *control.Share) {
			heldBack(s, 40*time.Minute, 0)
			s.Time.HeldBackPercent, s.Time.Percent = 0, new(3.2)
			s.Time.Lately = &control.Lately{Span: 10 * time.Minute, Used: uint64(3 * time.Minute), HeldBack: uint64(48 * time.Second), Copied: uint64(30 * time.Second), Awaited: uint64(2 * time.Minute)}
		},
		"on-the-host": func(_ *control.Listing, _ *control.Tenant, s *control.Share) {
			s.Time.Lately = &control.Lately{Span: 10 * time.Minute, Used: uint64(228 * time.Second)}
		},
		"copies": func(_ *control.Listing, _ *control.Tenant, s *control.Share) {
			s.Time.Lately = &control.Lately{Span: 10 * time.Minute, Used: uint64(228 * time.Second), Copied: math.MaxUint64, Awaited: uint64(time.Minute)}
		},
		"busy": func(_ *control.Listing, _ *control.Tenant, s *control.Share) {
			s.Time.Lately = &control.Lately{Span: 10 * time.Minute, Used: uint64(9*time.Minute + time.Second)}
		},
		"fixed": func(_ *control.Listing, _ *control.Tenant, s *control.Share) { heldBack(s, 40*time.Minute, 0) },
		"weighted": func(_ *control.Listing, _ *control.Tenant, s *control.Share) {
			heldBack(s, 40*time.Minute, 0)
			s.Policy, s.Cores = v1alpha1.PolicyWeighted, 0
		},
		"offline": func(_ *control.Listing, _ *control.Tenant, s *control.Share) {
			heldBack(s, 40*time.Minute, 40*time.Minute)
			s.Policy, s.Cores, s.Class = v1alpha1.PolicyWeighted, 0, v1alpha1.ClassOffline
		},
		"outside": func(l *control.Listing, _ *control.Tenant, s *control.Share) {
			heldBack(s, 40*time.Minute, 40*time.Minute) // of an online share, so the page lies
			l.Outside = []control.Outside{
				{PID: 77, User: "eve", Command: "x\x1b[2J", UUID: "GPU-00", Used: new(uint64(gib)), Percent: new(61.0)},
				{PID: 78, User: "eve", Command: "rests", UUID: "GPU-00", Used: new(uint64(gib)), Percent: new(0.0)},
			}
		},
		"alone": func(l *control.Listing, _ *control.Tenant, s *control.Share) {
			s.Time.Limited, s.Time.UsedUntil = false, l.Time.Add(-time.Second)
		},
		"debt": func(_ *control.Listing, _ *control.Tenant, s *control.Share) {
			heldBack(s, 4*time.Second, 0)
			s.Time.Inherited = uint64(3 * time.Second)
		},
		"stopped": func(_ *control.Listing, t *control.Tenant, _ *control.Share) {
			t.Ending = "eve stopped it (divvy stop)"
		},
		"killed": func(l *control.Listing, _ *control.Tenant, _ *control.Share) {
			l.Events = []control.Event{{Time: l.Time, Kind: control.EventMisuse, Tenant: "train", User: "ada", Text: "it uses 98% of the GPU's time, more than its share: its processes on the GPU were killed", Times: 1}}
		},
		"mps": func(_ *control.Listing, _ *control.Tenant, s *control.Share) {
			s.Backend, s.Mechanism, s.Time = v1alpha1.BackendMPS, "MPS, ceiling 30 % of SMs", nil
		},
		"claim": func(_ *control.Listing, t *control.Tenant, s *control.Share) {
			t.Namespace, t.Pods, s.Refusals = "lab", []string{"train-0"}, refused(1, 0)
		},
		"client": func(_ *control.Listing, t *control.Tenant, _ *control.Share) {
			t.Remote = &control.Remote{Client: "bea", Address: "10.0.0.7", Host: "laptop", User: "bea"}
		},
		"hostile": func(l *control.Listing, t *control.Tenant, s *control.Share) {
			t.Command = []string{"\x1b]0;owned\a", strings.Repeat("x", 1000), "\xff"}
			s.Peak, s.Used, s.Observed = math.MaxUint64, math.MaxUint64, nil
			s.Refusals = &control.Refusals{Count: math.MaxUint64, ByGPU: math.MaxUint64, Largest: math.MaxUint64, Last: math.MaxUint64, By: control.RefuserLimit}
			s.Time = &control.Time{Limited: true, Used: math.MaxUint64, HeldBackTotal: math.MaxUint64, Yielded: 1, HeldBackPercent: math.Inf(1)}
			l.Events = []control.Event{{Time: l.Time, Kind: control.EventFault, Tenant: "train", User: "ada", Text: "its file\nis spoilt\x07", Times: 2}}
			t.Remote = &control.Remote{Client: "\x1b[2J", Address: "\a", Host: strings.Repeat("x", 1000)}
			l.GPUs = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, tenant := explained(edit)
			text := strings.Join(why(l, tenant, whyUID), "\n") + "\n"
			golden(t, "why/"+name+".txt", text+"---\n"+strings.Join(summary(l, tenant, l.Time.Sub(tenant.Created), 0), "\n")+"\n")
			if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r == 0x7f) }); i >= 0 {
				t.Errorf("a terminal would obey %q", text[i:])
			}
		})
	}
}

// Who cannot change a share is told who can.
func TestWhyOfAnothersShare(t *testing.T) {
	l, tenant := explained(func(_ *control.Listing, _ *control.Tenant, s *control.Share) {
		s.Time.HeldBackTotal, s.Time.HeldBackPercent = 1, 50
	})
	for reader, want := range map[int][2]string{
		whyUID: {"This would help: ", "`divvy set train "}, 0: {"This would help: ", "`divvy set ada/train "}, 1002: {"This would help, by ada or root: ", "`divvy set ada/train "},
	} {
		if text := strings.Join(why(l, tenant, reader), "\n"); !strings.Contains(text, want[0]) || !strings.Contains(text, want[1]) {
			t.Errorf("user %d is told\n%s", reader, text)
		}
	}
}

// Of a share that has ended its own events are told.
func TestEventsOfAnEndedShare(t *testing.T) {
	l := &control.Listing{}
	for _, user := range []string{"ada", "kim"} {
		l.Events = append(l.Events, control.Event{Tenant: "train", User: user, Text: "by " + user}, control.Event{Tenant: "other", User: user},
			control.Event{Kind: control.EventRefused, Tenant: "train", User: user, Text: "no room"})
	}
	if got := eventsOf(l, "train", "kim", false); len(got) != 1 || !strings.Contains(got[0], "by kim") {
		t.Errorf("%q", got)
	}
	if got := eventsOf(l, "train", "", false); len(got) != 2 {
		t.Errorf("%q", got)
	}
	if got := eventsOf(l, "train", "kim", true); len(got) != 1 || !strings.Contains(got[0], "no room") {
		t.Errorf("%q", got)
	}
}

// The figures of a command that has ended come late: what was idle since it ended is not said of it.
func TestLatelyEndsWithTheCommand(t *testing.T) {
	for since, want := range map[time.Duration]string{
		-time.Second:            "The GPU had nothing of it to do for 75% of the last 2.0 s",
		0:                       "The GPU had nothing of it to do for 75% of the last 2.0 s",
		time.Second:             "The GPU had nothing of it to do for 50% of the last 1.0 s",
		1500 * time.Millisecond: "",
		time.Minute:             "",
	} {
		tenant := &control.Tenant{Shares: []control.Share{{Time: &control.Time{Lately: &control.Lately{Span: 2 * time.Second, Used: uint64(time.Second / 2)}}}, {}}}
		endLately(tenant, since)
		text, ok := idleText(tenant.Shares[0].Time.Lately)
		if ok != (want != "") || !strings.HasPrefix(text, want) {
			t.Errorf("%s after its end: %q, want %q", since, text, want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "0 ms", 999 * time.Millisecond: "999 ms", 1999 * time.Millisecond: "1.9 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 1 s",
		time.Hour + 59*time.Second: "1 h 0 min", 49 * time.Hour: "2 d 1 h",
	} {
		if got := span(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}

// The name of the share, and of no other, is in its environment.
func TestShareEnvironment(t *testing.T) {
	tenant := &control.Tenant{Name: "train", Shares: make([]control.Share, 2)}
	got := strings.Join(shareEnvironment([]string{"A=1", "DIVVY_SHARE=outer", "CUDA_VISIBLE_DEVICES=3,5"}, tenant), " ")
	if want := "A=1 CUDA_VISIBLE_DEVICES=0,1 DIVVY_SHARE=train"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

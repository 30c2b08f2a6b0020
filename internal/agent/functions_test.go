package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// enabling are virtual functions as a test says, with what was asked for.
type enabling struct {
	asked []string
	all   []control.Functions
	fail  error
	looks int    // after which slow functions are gone, 0 for never
	stop  func() // who asked goes away at the fourth look
}

func (e *enabling) SetFunctions(_ context.Context, device pci.Address, count int) ([]string, error) {
	e.asked = append(e.asked, fmt.Sprintf("%s %d", device, count))
	if e.fail != nil {
		return nil, e.fail
	}
	e.all = slices.DeleteFunc(e.all, func(f control.Functions) bool { return f.Device == device })
	if count != 0 {
		e.all = append(e.all, control.Functions{Device: device, Count: count, Phase: claims.Held})
		return nil, nil
	}
	return []string{"somebody changed it"}, nil
}

func (e *enabling) EnabledFunctions() []control.Functions {
	if e.looks--; e.looks == 0 {
		e.all = nil
	}
	if e.looks == -4 && e.stop != nil {
		e.stop()
	}
	return e.all
}

// Functions that the kernel takes away slowly are waited for, and one that is still at work is no holder that is not seen. Of one that
// somebody holds the command tells at once.
func TestFunctionsThatGoSlowly(t *testing.T) {
	slow := &vfio.StuckError{Step: "disable 2 virtual functions", Slow: true}
	for name, c := range map[string]struct {
		fail  error
		looks int
		want  string
	}{
		"it ends":       {fmt.Errorf("wait: %w", slow), 4, ""},
		"it goes on":    {slow, 0, "the kernel is still at work to disable 2 virtual functions: nobody is seen"},
		"it is held":    {&vfio.StuckError{Step: "disable 2 virtual functions"}, 4, "is stuck"},
		"it is refused": {errors.New("no way"), 4, "no way"},
	} {
		e := &enabling{fail: c.fail, looks: c.looks, all: []control.Functions{{Device: pci.Address{Bus: 0x99}, Count: 2, Phase: claims.Leaving}}}
		n := newNode(t)
		s := n.settings(onBus{n.backend, -1})
		s.Machines, s.Functions = &ledgerOf{}, e
		r := n.startAs(s)
		ctx, cancel := context.WithCancel(t.Context())
		e.stop = cancel
		f, err := r.SetFunctions(ctx, pci.Address{Bus: 0x99}, 0)
		cancel()
		if c.want == "" && (err != nil || f.Count != 0) || c.want != "" && !says(err, c.want) || len(e.asked) != 1 {
			t.Errorf("%s: %+v, %v, asked %q", name, f, err, e.asked)
		}
	}
}

// Where the agent serves no GPU nobody counts them, and the refusal says what names one.
func TestIndexWithoutTheDriver(t *testing.T) {
	_, err := (&Agent{}).deviceNamed("0", nil)
	if control.CodeOf(err) != control.CodeNotFound || !says(err, "GPU 0 is not known", "by its PCI address, such as 0000:3b:00.0") || says(err, "divvy ls") {
		t.Error(err)
	}
}

// Root enables functions of a GPU without shares, while no process of the agent's has the driver open.
func TestSetFunctions(t *testing.T) {
	n, e, l, letGo := newNode(t), &enabling{}, &ledgerOf{}, 0
	c := n.settings(onBus{n.backend, -1})
	c.Machines, c.Functions = l, e
	c.LetGo = func(do func() error) error {
		letGo++
		return do()
	}
	r := n.startAs(c)
	onFirst := ask(gib)
	onFirst.Request.Name, onFirst.Request.Among = "train", []string{"0"}
	n.grant(r, n.asker(0), onFirst)
	card := pci.Address{Bus: 0x99}
	for name, c := range map[string]struct {
		peer *control.Peer
		p    control.SetFunctionsParams
		code control.Code
		text string
	}{
		"a user":             {n.asker(1000).peer, control.SetFunctionsParams{GPU: "1", Count: 2}, control.CodeDenied, "root"},
		"no device":          {root, control.SetFunctionsParams{Count: 2}, control.CodeInvalid, "name one device"},
		"two":                {root, control.SetFunctionsParams{GPU: "1", PCI: &card, Count: 2}, control.CodeInvalid, "name one device"},
		"no such GPU":        {root, control.SetFunctionsParams{GPU: "9", Count: 2}, control.CodeNotFound, "9"},
		"a GPU with a share": {root, control.SetFunctionsParams{GPU: "0", Count: 2}, control.CodeRefused, "train"},
	} {
		if _, err := r.setFunctions(t.Context(), c.peer, c.p); control.CodeOf(err) != c.code || !says(err, c.text) {
			t.Errorf("%s: %v (%s), want %s with %s", name, err, control.CodeOf(err), c.code, c.text)
		}
	}
	if len(e.asked) > 0 || letGo > 0 {
		t.Fatalf("for that was asked %q, and the driver was let go %d times", e.asked, letGo)
	}

	f, err := r.setFunctions(t.Context(), root, control.SetFunctionsParams{GPU: "1", Count: 4})
	if err != nil || f.Device != addressOf(1) || f.Count != 4 || f.Index == nil || *f.Index != 1 || f.State() != "held" || letGo != 1 {
		t.Errorf("%+v, %v; let go of the driver %d times", f, err, letGo)
	}
	if f, err = r.setFunctions(t.Context(), root, control.SetFunctionsParams{PCI: &card, Count: pci.AllFunctions}); err != nil || f.Device != card || f.Index != nil || letGo != 1 {
		t.Errorf("a card: %+v, %v; let go of the driver %d times", f, err, letGo)
	}
	if d, err := r.devices(t.Context(), root, struct{}{}); err != nil || len(d.Functions) != 2 || *d.Functions[0].Index != 1 {
		t.Errorf("listed are %+v, %v", d, err)
	}
	l.lost = errors.New("the book is damaged")
	if d, err := r.devices(t.Context(), root, struct{}{}); err != nil || d.Unread != "the book is damaged" {
		t.Errorf("of a book that cannot be read: %+v, %v", d, err)
	}
	e.fail = errors.New("the kernel refuses")
	if _, err := r.setFunctions(t.Context(), root, control.SetFunctionsParams{GPU: "1", Count: 2}); control.CodeOf(err) != control.CodeRefused || !says(err, "the kernel refuses") {
		t.Errorf("%v", err)
	}
	e.fail = nil
	if f, err = r.setFunctions(t.Context(), root, control.SetFunctionsParams{GPU: "1"}); err != nil || f.Count != 0 || f.State() != "" || len(f.Left) != 1 {
		t.Errorf("taken away: %+v, %v", f, err)
	}
	want := []string{addressOf(1).String() + " 4", card.String() + " -1", addressOf(1).String() + " 2", addressOf(1).String() + " 0"}
	if got := strings.Join(e.asked, ", "); got != strings.Join(want, ", ") {
		t.Errorf("asked %s, want %s", got, want)
	}
	// A GPU with functions takes shares again.
	onSecond := ask(gib)
	onSecond.Request.Among = []string{"1"}
	n.grant(r, n.asker(0), onSecond)
}

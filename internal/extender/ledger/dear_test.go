package ledger

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// A pod whose selectors would keep all others waiting is refused, once, and what others ask is answered as before.
func TestDearSelectors(t *testing.T) {
	dear := `device.attributes["divvy.dev"].uuid != ""`
	for i := range 8 {
		dear = fmt.Sprintf("[0,1,2,3].all(x%d, %s)", i, dear)
	}
	l := newLedger(t, alloc.DefaultPolicy)
	var names []string
	put := func(i int) {
		names = append(names, fmt.Sprint("n", i))
		l.SetNode(names[i], nodeOf(t, names[i], gpus(names[i], 8, 40*gib), nil))
	}
	for i := range 4 {
		put(i)
	}
	asks := func(uid, selector string) error {
		s := ask("main", 1, gib, 0)
		s.Selectors = []string{selector}
		_, err := l.Filter(podOf(t, uid, s), names)
		return err
	}
	const mostOnce = 1_000_000 // what Kubernetes lets one evaluation cost
	refused := func(uid string) {
		t.Helper()
		if err := asks(uid, dear); !errors.Is(err, ErrPod) || !strings.Contains(err.Error(), "too long") {
			t.Errorf("%s: %v", uid, err)
		}
		if l.selectors.spent > mostCost+mostOnce {
			t.Errorf("%s: %d was spent", uid, l.selectors.spent)
		}
	}
	refused("a")
	if l.selectors.spent <= mostCost {
		t.Errorf("%d was spent", l.selectors.spent)
	}
	l.selectors.spent = 0
	if refused("b"); l.selectors.spent != 0 {
		t.Errorf("%d was spent on what is known", l.selectors.spent)
	}
	if err := asks("c", `device.attributes["divvy.dev"].uuid.endsWith("0")`); err != nil {
		t.Error(err)
	}
	put(4)
	if refused("d"); l.selectors.spent == 0 {
		t.Error("it is not asked again for other GPUs")
	}
	check(t, l)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/visible"
)

// cudaTime bounds the question to CUDA for its order of GPUs: a driver that does not answer is told of elsewhere.
const cudaTime = 5 * time.Second

// leastShare is the memory of a small share beyond what its context takes, in bytes.
const leastShare = 64 << 20

// orderVariable is how CUDA is told to count GPUs.
const orderVariable = "CUDA_DEVICE_ORDER"

// answerChecks tell whether the driver answers, where no agent does.
func (s sight) answerChecks(served func() (daemon.Machine, error)) []doctor.Check {
	if s.list != nil || s.machinesOnly() {
		return nil
	}
	c := doctor.Check{ID: "driver.answers", Name: "driver", Status: doctor.Fail, Next: "try `nvidia-smi`, and look at the kernel's log: `dmesg`"}
	m, err := served()
	switch {
	case errors.Is(err, driver.ErrNotFound), errors.Is(err, driver.ErrUnusable), errors.Is(err, driver.ErrNested):
		return nil // the check of its libraries tells
	case err != nil:
		c.Found = err.Error()
	case len(m.GPUs) == 0 && m.Unknown > 0:
		c.Found = fmt.Sprintf("it does not answer about any of %d GPUs", m.Unknown)
	case len(m.GPUs) == 0:
		c.Found = "it knows no GPU"
	default:
		c.Status, c.Next, c.Found = doctor.OK, "", fmt.Sprintf("it answers about %d GPUs", len(m.GPUs))
		if m.Unknown > 0 {
			c.Status, c.Next = doctor.Warn, "look at the kernel's log (`dmesg`), and reset the GPU"
			c.Found += fmt.Sprintf(", and not about %d", m.Unknown)
		}
	}
	return []doctor.Check{c}
}

// sightOf is what is needed to understand the variables that choose GPUs.
func (a *app) sightOf(ctx context.Context, seen sight, served func() (daemon.Machine, error), w visible.Wish, finder driver.Finder) (visible.Sight, error) {
	var s visible.Sight
	var err error
	if s.Hidden, err = finder.Hidden(); err != nil {
		return s, err
	}
	known, shown := w.Asks(s.Hidden)
	if known || shown {
		m, err := served()
		if err != nil {
			return s, err
		}
		for _, gpu := range m.GPUs {
			s.Served = append(s.Served, visible.GPU{Index: gpu.Index, UUID: gpu.UUID})
		}
		if seen.list != nil {
			s.LeftOut = seen.list.LeftOut
		}
	}
	if shown {
		d, err := finder.Find()
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, cudaTime)
			defer cancel()
			s.Shown, err = finder.Order(ctx, a.tree.Program("divvy-probe"), d)
		}
		s.Blind = err
	}
	return s, nil
}

// visibleChecks read the variables by which programs choose GPUs, as `divvy run` does, and return what it would ask for.
func (a *app) visibleChecks(ctx context.Context, seen sight, served func() (daemon.Machine, error)) (checks []doctor.Check, c visible.Choice) {
	if seen.machinesOnly() {
		return nil, c
	}
	order, ordered := os.LookupEnv(orderVariable)
	if ordered && order != "PCI_BUS_ID" && order != "FASTEST_FIRST" {
		checks = append(checks, doctor.Check{
			ID: "variables.order", Name: orderVariable, Status: doctor.Warn, Found: fmt.Sprintf("%q is no order that CUDA knows: it takes FASTEST_FIRST", order),
			Next: "export " + orderVariable + "=PCI_BUS_ID, which counts as nvidia-smi and `divvy ls` do",
		})
	}
	w := (&choiceFlags{}).wish()
	finder := driver.Finder{Instance: seen.simgpu()}
	if _, err := finder.Find(); err != nil && w.Validate() == nil {
		return checks, c // the checks of the driver tell
	}
	check := doctor.Check{ID: "variables.visible", Name: visible.Variable, Status: doctor.OK, Found: "not set: any GPU may serve"}
	err := w.Validate()
	var s visible.Sight
	if err == nil {
		if s, err = a.sightOf(ctx, seen, served, w, finder); err != nil {
			return checks, c // the driver does not answer, which is told
		}
		c, err = visible.Choose(w, s)
	}
	switch {
	case err != nil:
		check.Status, check.Found = doctor.Fail, err.Error()
		check.Next = "give it GPUs that are there, or have Divvy choose: unset " + visible.Variable
		if w.Variable == nil {
			check.Name, check.Next = "GPUs of this process", "ask for GPUs where this shell or job was started: its cgroup or the modes of /dev/nvidia* keep them from it"
		}
	case w.Variable != nil:
		check.Found = fmt.Sprintf("%s means %s; in a share these are %s", *w.Variable, gpusNamed(s.Served, c.Among), counted(len(c.Among)))
		checks = append(checks, orderChecks(s, *w.Variable)...)
	case c.Among != nil:
		check.Found = "not set; this process may use " + gpusNamed(s.Served, c.Among)
	}
	return append(checks, check), c
}

// orderChecks tell where an index in CUDA_VISIBLE_DEVICES is another GPU's in nvidia-smi.
func orderChecks(s visible.Sight, value string) []doctor.Check {
	for text := range strings.SplitSeq(value, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 0 || n >= len(s.Shown) {
			continue
		}
		at := slices.IndexFunc(s.Served, func(g visible.GPU) bool { return g.UUID == s.Shown[n] })
		if at < 0 || s.Served[at].Index == n || s.Hidden {
			continue // with GPUs hidden the numbers have to differ
		}
		return []doctor.Check{{
			ID: "variables.order", Name: orderVariable, Status: doctor.Warn,
			Found: fmt.Sprintf("%d in %s is GPU %d of `divvy ls` and nvidia-smi, because CUDA counts the fastest GPUs first", n, visible.Variable, s.Served[at].Index),
			Next:  "export " + orderVariable + "=PCI_BUS_ID, or name GPUs by UUID",
		}}
	}
	return nil
}

// gpusNamed names GPUs by index, or by UUID where that is not known.
func gpusNamed(served []visible.GPU, uuids []string) string {
	var names []string
	for _, uuid := range uuids {
		name := uuid
		if at := slices.IndexFunc(served, func(g visible.GPU) bool { return g.UUID == uuid }); at >= 0 {
			name = fmt.Sprintf("GPU %d", served[at].Index)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// counted is how a share numbers its GPUs.
func counted(n int) string {
	var numbers []string
	for i := range n {
		numbers = append(numbers, strconv.Itoa(i))
	}
	return strings.Join(numbers, ",")
}

// roomChecks ask the agent whether a small share could start now where the variables allow it.
func (a *app) roomChecks(ctx context.Context, s sight, among visible.Choice) []doctor.Check {
	if s.list == nil || len(s.list.GPUs) == 0 {
		return nil
	}
	least := uint64(leastShare)
	for _, g := range s.list.GPUs {
		least = max(least, g.ContextBytes+leastShare)
	}
	r := v1alpha1.ShareRequest{Memory: v1alpha1.Bytes(least), Among: among.Among, GPUs: among.Count}
	c := doctor.Check{ID: "agent.room", Name: "room", Status: doctor.OK, Found: "a share fits now"}
	ctx, cancel := context.WithTimeoutCause(ctx, agentTime, errMute)
	defer cancel()
	var e *control.Explanation
	err := ask(ctx, s.endpoint, func(client *control.Client) (err error) {
		e, err = client.Explain(ctx, control.ExplainParams{Request: r})
		return err
	})
	if err != nil {
		c.Status, c.Found = doctor.Fail, err.Error()
		return []doctor.Check{c}
	}
	if e.Refused != "" {
		c.Status, c.Found, c.Next = doctor.Fail, e.Refused, "`divvy explain --backend auto` says for each backend what it could do"
		return []doctor.Check{c}
	}
	for _, v := range e.Backends {
		if v.Chosen && v.State != "fits" {
			c.Status, c.Found = doctor.Fail, "not even a share of "+size(r.Memory.InBytes())+" fits now: "+v.Reason
			c.Next = "wait for room: `divvy run --wait`; `divvy ls` shows who has what"
		}
	}
	return []doctor.Check{c}
}

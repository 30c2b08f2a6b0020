package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// A claim is in the log once, with its device, its user, and what became of it. Who asks for it again is told that it was there.
func TestClaimsInTheLog(t *testing.T) {
	n, l := newNode(t), &ledgerOf{again: true}
	var log bytes.Buffer
	settings := n.settings(onBus{n.backend, -1})
	settings.Machines, settings.Log = l, slog.New(slog.NewTextHandler(&log, nil))
	r := n.startAs(settings)
	user := process.UserName(1000)
	logged := func(what string, count int, words ...string) {
		t.Helper()
		found := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level=INFO msg="+strconv.Quote(what)) && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				found++
			}
		}
		if found != count {
			t.Errorf("%q with %q is logged %d times, want %d, in\n%s", what, words, found, count, log.String())
		}
	}
	for i := range 2 {
		d, err := r.takeDevice(t.Context(), root, passthrough("vm", "1"))
		if err != nil || d.Existed != (i == 1) {
			t.Errorf("claimed %+v, %v", d, err)
		}
	}
	logged("a virtual machine has a device", 1, "claim=vm", "form=passthrough", addressOf(1).String(), "user="+user)
	if _, err := r.takeDevice(t.Context(), root, passthrough("other", "1")); err == nil {
		t.Error("it is claimed twice")
	}
	logged("a claim of a device is refused", 1, "claim=other", addressOf(1).String(), "user="+user, "claim vm")

	release := func() (*control.DeviceReleased, error) {
		return r.releaseDevice(t.Context(), root, control.ReleaseDeviceParams{Name: "vm"})
	}
	l.fail = errors.New("process 7 has it open")
	if _, err := release(); !says(err, "process 7") {
		t.Error(err)
	}
	logged("a device of a virtual machine cannot be put back", 1, "claim=vm", "user="+user, "process 7")
	l.fail, l.left = nil, []string{"its driver_override was left"}
	if d, err := release(); err != nil || !slices.Equal(d.Left, l.left) {
		t.Errorf("released: %+v, %v", d, err)
	}
	logged("a device of a virtual machine was put back", 1, "claim=vm", "form=passthrough", addressOf(1).String(), "user="+user, "left=1")
	if lines := strings.Count(log.String(), "claim="); lines != 4 {
		t.Errorf("claims are in %d lines of\n%s", lines, log.String())
	}
}

// Of a claim that is in no ledger any more nobody knows whose it is: neither the list nor the log names root.
func TestClaimOfALostLedger(t *testing.T) {
	n := newNode(t)
	l := &ledgerOf{all: []claims.Claim{{Want: claims.Want{Name: "vm", Form: v1alpha1.BackendPassthrough, Device: addressOf(1)}, Times: claims.Times{Phase: claims.Held}, Foreign: true}}}
	var log bytes.Buffer
	settings := n.settings(onBus{n.backend, -1})
	settings.Machines, settings.Log = l, slog.New(slog.NewTextHandler(&log, nil))
	r := n.startAs(settings)
	if d, err := r.devices(t.Context(), root, struct{}{}); err != nil || len(d.Claims) != 1 || d.Claims[0].User != "" {
		t.Errorf("listed are %+v, %v", d, err)
	}
	if err := r.ReleaseDevice(t.Context(), "vm"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), `msg="a device of a virtual machine was put back" claim=vm form=passthrough devices=[0000:3c:00.0] user="" `) {
		t.Errorf("logged is\n%s", log.String())
	}
	for _, e := range n.list(r).Events {
		if e.User != "" {
			t.Errorf("an event names %s: %s", e.User, e.Text)
		}
	}
}

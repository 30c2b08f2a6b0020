package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

func deviceClaim(name string, form v1alpha1.Backend, kind string) control.DeviceClaim {
	at := pci.Address{Bus: 0x3b}
	return control.DeviceClaim{
		Want:  claims.Want{Name: name, Form: form, Type: kind, Device: at},
		Given: claims.Given{Group: 7, Members: []pci.Address{at}}, Times: claims.Times{Since: time.Unix(1e9, 0), Phase: claims.Held}, User: "ada",
	}
}

func TestClaimWrongUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                             "name one device",
		"a --gpu 0 --pci x":            "name one device",
		"a --gpu 0":                    "use passthrough, vf or vgpu:TYPE",
		"a --gpu 0 --form slice":       "use passthrough, vf or vgpu:TYPE",
		"a --gpu 0 --form vgpu":        "add the type",
		"a --gpu 0 --form vf:x":        "only vgpu has types",
		"a --pci 3b --form vf":         "not a PCI address",
		"a --gpu 0 --form vf --also y": "--also",
		"a --gpu 0 --like b --form vf": "leave out --form",
		"a --gpu 0 --form passthrough --memory 50%":       `"50%" for "--memory" flag: give an amount of memory such as 64Gi`,
		"a --gpu 0 --form passthrough --memory abc":       `"abc" for "--memory" flag: give an amount of memory such as 64Gi or 512Mi`,
		"a --gpu 0 --form passthrough --memory 64gb":      "such as 64Gi or 512Mi: did you mean 64G?",
		"a --gpu 0 --form passthrough --memory 64":        "such as 64Gi or 512Mi: did you mean 64Mi?",
		"a --gpu 0000:3b:00.0 --pci 0000:3b:00.0":         "name one device",
		"a --gpu 0 --form passthrough --for xen":          "qemu or libvirt",
		"a --gpu 0 --form passthrough --user no-such-one": "--user: there is no user",
		"A/b --gpu 0 --form passthrough":                  "lower-case letters",
		"a b --gpu 0 --form passthrough":                  "at most one name",
	} {
		status, out, errOut := call(t, append([]string{"vm", "claim"}, strings.Fields(args)...)...)
		if status != program.ExitUsage || !strings.Contains(errOut, want) || out != "" {
			t.Errorf("%q: status %d, %s%s, want %q", args, status, out, errOut, want)
		}
	}
	// A name that a terminal would obey is refused, and not obeyed.
	if status, _, errOut := call(t, "vm", "claim", "a\x1b[2J", "--gpu", "0", "--form", "passthrough"); status != program.ExitUsage || strings.Contains(errOut, "\x1b") {
		t.Errorf("status %d: %q", status, errOut)
	}
}

// A claim that another one is to be like comes from what either command printed on the other host.
func TestLike(t *testing.T) {
	vgpu, whole := deviceClaim("desk", v1alpha1.BackendVGPU, "nvidia-471"), deviceClaim("train", v1alpha1.BackendPassthrough, "")
	odd := deviceClaim("\x1b[2J", v1alpha1.BackendVGPU, "nvidia-471")
	for name, c := range map[string]struct {
		document     any
		called, want string
	}{
		"a claim":              {claimed{Claim: vgpu}, "", ""},
		"a list":               {control.Devices{Claims: []control.DeviceClaim{vgpu}}, "other", ""},
		"one of two":           {control.Devices{Claims: []control.DeviceClaim{whole, vgpu}}, "desk", ""},
		"two, without a name":  {control.Devices{Claims: []control.DeviceClaim{vgpu, whole}}, "", "it has 2 claims (desk, train): claim with the name of one of them"},
		"two of another name":  {control.Devices{Claims: []control.DeviceClaim{odd, whole}}, "other", `it has 2 claims (\x1b[2J, train)`},
		"two, one after other": {json.RawMessage(`{"claim":{}}`), "twice", "read a claim"},
		"none":                 {struct{}{}, "", "it has no claim"},
		"no claims":            {"text", "", "read a claim"},
	} {
		content, err := json.Marshal(c.document)
		if err != nil {
			t.Fatal(err)
		}
		if c.called == "twice" {
			content = append(content, content...)
		}
		path := filepath.Join(t.TempDir(), "claim.json")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := claimIn(path, c.called)
		if c.want == "" && (err != nil || got.Type != "nvidia-471" || got.Form != v1alpha1.BackendVGPU) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := claimIn(filepath.Join(t.TempDir(), "none"), ""); err == nil || !strings.Contains(err.Error(), "no such claim") {
		t.Error(err)
	}
	if err := movable(whole); err == nil || !strings.Contains(err.Error(), "cannot move") {
		t.Errorf("a whole device: %v", err)
	}
	if err := movable(vgpu); err != nil {
		t.Error(err)
	}
}

// What people have to know besides is told beside what a program reads: that a claim was there, what others had set of its devices, and
// what they changed meanwhile.
func TestToldOfClaims(t *testing.T) {
	c := deviceClaim("train", v1alpha1.BackendPassthrough, "")
	c.Existed, c.Notes = true, []string{"0000:3b:00.1 was with vfio-pci already", "a\x1b[2J"}
	made := c
	made.Existed, made.Notes = false, nil
	released := control.DeviceReleased{Left: []string{"0000:3b:00.0 has no driver now"}}
	const existed = "divvy: claim train exists already, with what is asked for: nothing was changed\n"
	answer := func(what any) deeds {
		do := func() (any, error) { return what, nil }
		return deeds{control.MethodTakeDevice: do, control.MethodReleaseDevice: do}
	}
	dies := func() (any, error) { return nil, errDies }
	for name, test := range map[string]struct {
		args   string
		agents []deeds
		want   string
	}{
		"it was there":            {"claim train --gpu 0 --form passthrough", []deeds{answer(c)}, existed + "divvy: claim train: 0000:3b:00.1 was with vfio-pci already\ndivvy: claim train: a\\x1b[2J\n"},
		"it is new":               {"claim train --gpu 0 --form passthrough", []deeds{answer(made)}, ""},
		"an agent died meanwhile": {"claim train --gpu 0 --form passthrough", []deeds{{control.MethodTakeDevice: dies}, answer(control.DeviceClaim{Want: made.Want, Given: made.Given, Existed: true})}, "divvy: the agent ended before it answered: asking the next one\n"},
		"released":                {"release train", []deeds{answer(released)}, "divvy: claim train: 0000:3b:00.0 has no driver now\n"},
		"released as it was":      {"release train", []deeds{answer(control.DeviceReleased{})}, ""},
	} {
		succession(t, test.agents...)
		var out, errOut strings.Builder
		a := &app{rundir: rundir.Path(), out: &out, err: &errOut, awayTime: time.Millisecond}
		status := a.execute(append([]string{"vm"}, strings.Fields(test.args)...))
		if status != 0 || errOut.String() != test.want || strings.HasPrefix(test.args, "claim") != strings.HasPrefix(out.String(), "claim train: 0000:3b:00.0") {
			t.Errorf("%s: status %d, told %q, want %q, and printed %s", name, status, errOut.String(), test.want, out.String())
		}
	}
}

// full is a terminal that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// Who cannot be told what a virtual machine needs is told that the claim is held, and how it ends.
func TestClaimThatCannotBePrinted(t *testing.T) {
	l := succession(t, deeds{control.MethodTakeDevice: func() (any, error) { return deviceClaim("vm1", v1alpha1.BackendPassthrough, ""), nil }})
	var errOut strings.Builder
	status := Main([]string{"vm", "claim", "--gpu", "0", "--form", "passthrough"}, full{}, &errOut)
	for _, want := range []string{"claim vm1 is held", "no space left", "`divvy vm release vm1` puts it back"} {
		if status != program.ExitFailure || !strings.Contains(errOut.String(), want) {
			t.Errorf("status %d, %q has no %q", status, errOut.String(), want)
		}
	}
	if asked := l.of(control.MethodTakeDevice); len(asked) != 1 {
		t.Errorf("the agent was asked %v", asked)
	}
}

// A claim that is gone once the agent that was asked was followed by another one has been released. Else it never was there.
func TestReleaseWhoseAgentDies(t *testing.T) {
	dies := func() (any, error) { return nil, errDies }
	unknown := func() (any, error) { return nil, control.Errorf(control.CodeNotFound, "there is no such claim") }
	refused := func() (any, error) { return nil, control.Errorf(control.CodeRefused, "a virtual machine has it open") }
	const release, functions = control.MethodReleaseDevice, control.MethodSetFunctions
	for name, c := range map[string]struct {
		args          string
		agents        []deeds
		status, asked int
		says          string
	}{
		"and the claim is gone":       {"release q0.1", []deeds{{release: dies}, {release: unknown}}, 0, 2, ""},
		"and the next one refuses":    {"release q0.1", []deeds{{release: dies}, {release: refused}}, 1, 2, "a virtual machine has it open"},
		"no agent dies":               {"release q0.1", []deeds{{release: unknown}}, 1, 1, "there is no such claim"},
		"functions of what is no GPU": {"functions 7 --count 2", []deeds{{functions: dies}, {functions: unknown}}, 1, 2, "there is no such claim"},
	} {
		l := succession(t, c.agents...)
		status, said := l.call(append([]string{"vm"}, strings.Fields(c.args)...)...)
		if status != c.status || !strings.Contains(said, c.says) || strings.Contains(said, "share") {
			t.Errorf("%s: status %d, %s", name, status, said)
		}
		if asked := len(l.of(release)) + len(l.of(functions)); asked != c.asked {
			t.Errorf("%s: the agents were asked %d times", name, asked)
		}
	}
}

// That nobody knows how much a user without processes may lock is said, instead of the limit of who asks.
func TestClaimForUserWithoutProcesses(t *testing.T) {
	c := deviceClaim("vm1", v1alpha1.BackendPassthrough, "")
	c.UID = 4294000001
	succession(t, deeds{control.MethodTakeDevice: func() (any, error) { return c, nil }})
	var out, errOut strings.Builder
	status := Main([]string{"vm", "claim", "--gpu", "0", "--form", "passthrough", "--user", "4294000001", "--memory", "64Mi"}, &out, &errOut)
	if status != 0 || !strings.Contains(out.String(), "\n! how much memory programs of ada may lock is not known") || !strings.Contains(out.String(), "\n$ ulimit -l\n") {
		t.Errorf("status %d: %s%s", status, out.String(), errOut.String())
	}
}

// A list has one row for each claim, and below who keeps a device; what others named is fit for a terminal.
func TestPrintClaims(t *testing.T) {
	held, stuck := deviceClaim("train", v1alpha1.BackendPassthrough, ""), deviceClaim("desk", v1alpha1.BackendVGPU, "nvidia-\x1b[2J")
	held.Index = new(int)
	lost := deviceClaim("old", v1alpha1.BackendPassthrough, "")
	lost.User = "" // its ledger was lost
	stuck.Phase, stuck.Fault = claims.Leaving, "process 2211 (\x1b[2J) has /dev/nvidia0 open"
	var w strings.Builder
	printClaims(&w, []control.DeviceClaim{held, stuck, lost}, time.Unix(1e9+120, 0), look{})
	for _, want := range []string{"VM CLAIM", "train     ada   passthrough", "old       -     passthrough", "held", "stuck", "! claim desk: process 2211", `\x1b[2J`} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("there is no %q in\n%s", want, w.String())
		}
	}
	if strings.Contains(w.String(), "\x1b") {
		t.Errorf("a terminal would obey\n%q", w.String())
	}
}

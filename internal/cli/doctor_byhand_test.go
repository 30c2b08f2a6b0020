package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
)

// givenHost is a host whose agent gave a GPU, whose override is its driver's name if settled is true, and a virtual function of a card
// that it gave four.
type givenHost struct {
	vmtest.Shell
	dir, before string
	gpu, card   pci.Address
}

func giveDevices(t *testing.T, settled bool) givenHost {
	t.Helper()
	g := givenHost{dir: t.TempDir(), gpu: pci.Address{Bus: 0x3d}, card: pci.Address{Bus: 0x5e}}
	device := func(at pci.Address, group int, driver string) facts.Device {
		d := facts.Device{Group: group, Driver: driver, Resets: []string{"flr"}}
		d.Address = at
		return d
	}
	h := &facts.Host{Modules: map[string]facts.Module{"vfio_pci": {Loaded: true}}, Devices: []facts.Device{device(g.gpu, 7, "nvidia"), device(g.card, 8, "mlx5_core")}}
	h.Devices[1].VFsTotal = 4
	if settled {
		h.Devices[0].Override = "nvidia"
	}
	g.Shell = vmtest.Shell{Root: t.TempDir(), Kernel: vmtest.NewKernel(h)}
	g.before = g.Kernel.Snapshot()
	enable, err := binding.EnableFunctions(&vgpu.GPU{Address: g.card, FunctionsTotal: 4, Driver: "mlx5_core", Probed: "1"}, 4)
	if err != nil {
		t.Fatal(err)
	}
	function := device(vmtest.Virtual(g.card, 3), 11, "")
	function.Virtual = true
	h.Devices = append(h.Devices, function)
	whole, err := binding.Passthrough(h, g.gpu)
	if err != nil {
		t.Fatal(err)
	}
	part, err := binding.Function(h, function.Address)
	if err != nil {
		t.Fatal(err)
	}
	var entries []vfio.Entry
	for owner, plan := range map[string]binding.Plan{"functions." + g.card.String(): enable, "train": whole, "part": part} {
		entries = append(entries, vfio.Entry{Owner: owner, Plan: plan, Phase: vfio.Bound, Begun: len(plan.Steps)})
	}
	receipts := filepath.Join(g.dir, "vfio-receipts")
	err = errors.Join(os.Mkdir(receipts, 0o700), checkpoint.NewFile[[]vfio.Entry](filepath.Join(g.dir, vfio.FileName), "vfio", 1).Save(entries))
	for _, plan := range []binding.Plan{enable, whole, part} {
		for _, s := range plan.Steps {
			err = errors.Join(err, g.Kernel.Do(s))
			if s.Alike {
				err = errors.Join(err, os.WriteFile(filepath.Join(receipts, s.Device.String()+"-"+string(s.Kind)), []byte(`{"owner":"functions.`+g.card.String()+`"}`), 0o600))
			}
		}
	}
	err = errors.Join(err, g.Show(), g.claim(t.Context(), "train", v1alpha1.BackendPassthrough, whole), g.claim(t.Context(), "part", v1alpha1.BackendVF, part))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// maker gives what a plan says, and has nothing to put back.
type maker struct{ plan binding.Plan }

func (m maker) Take(_ context.Context, _ claims.Want, admit func([]pci.Address) error) (claims.Given, error) {
	return claims.Given{Group: m.plan.Group, Members: m.plan.Members}, admit(m.plan.Members) // its nodes are not of this machine
}
func (maker) Release(context.Context, string) ([]string, error) { return nil, nil }
func (maker) Standing(string) claims.Standing                   { return claims.Standing{} }

// ledger is the one of claims, as an agent has it that gives what a plan says.
func (g givenHost) ledger(plan binding.Plan) (*claims.Ledger, error) {
	return claims.Open(claims.Config{
		Path: filepath.Join(g.dir, claims.FileName), Now: time.Now,
		Makers: map[v1alpha1.Backend]claims.Maker{v1alpha1.BackendPassthrough: maker{plan}, v1alpha1.BackendVF: maker{plan}},
	})
}

func (g givenHost) claim(ctx context.Context, name string, form v1alpha1.Backend, plan binding.Plan) error {
	l, err := g.ledger(plan)
	if err == nil {
		_, err = l.Take(ctx, claims.Want{Name: name, Form: form, Device: plan.Device}, nil)
	}
	return err
}

// Whoever follows the lines of the doctor to the letter has the host as it was, with the override that there was, and the doctor
// says no more.
func TestDoctorsLinesPutBackWhatIsLeft(t *testing.T) {
	for _, settled := range []bool{false, true} {
		g := giveDevices(t, settled)
		checks := deviceChecks(g.dir, g.Root, false)
		if len(checks) != 1 || checks[0].ID != "vm.left" || !strings.Contains(checks[0].Found, "the virtual functions of "+g.card.String()) {
			t.Fatalf("%+v", checks)
		}
		follow(t, g, checks[0])
	}
}

// So has who follows those of a book that cannot be read or is gone, where no override was set before, and the claims can be released then.
func TestDoctorsLinesPutBackWhatADamagedBookHad(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root's book is told as damaged")
	}
	for _, damage := range []func(name string) error{os.Remove, func(name string) error { return os.WriteFile(name, []byte("nonsense"), 0o600) }} {
		putBackDamaged(t, damage)
	}
}

func putBackDamaged(t *testing.T, damage func(name string) error) {
	t.Helper()
	g := giveDevices(t, false)
	if err := damage(filepath.Join(g.dir, vfio.FileName)); err != nil {
		t.Fatal(err)
	}
	checks := deviceChecks(g.dir, g.Root, true)
	if len(checks) != 1 || checks[0].ID != "vm.book" || strings.Contains(checks[0].Found, "of no claim") {
		t.Fatalf("%+v", checks)
	}
	follow(t, g, checks[0])
	l, err := g.ledger(binding.Plan{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"train", "part"} {
		if err := l.Release(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if all, _ := l.List(); len(all) != 0 {
		t.Errorf("the claims are %+v", all)
	}
}

// What is on vfio-pci and of no claim may be another tool's: no line touches it, and it is named with a command that shows whose it is.
func TestDoctorNamesWhatNoClaimHas(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root's book is told as damaged")
	}
	g := giveDevices(t, false)
	err := errors.Join(os.Remove(filepath.Join(g.dir, claims.FileName)), os.WriteFile(filepath.Join(g.dir, vfio.FileName), []byte("nonsense"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	checks := deviceChecks(g.dir, g.Root, false)
	if len(checks) != 1 || !strings.Contains(checks[0].Found, "of no claim: 0000:3d:00.0, 0000:5e:00.3") || slices.ContainsFunc(checks[0].Commands, func(line string) bool { return strings.Contains(line, "3d:00.0") }) {
		t.Fatalf("%+v", checks)
	}
	_, command, _ := strings.Cut(checks[0].Next, "(`divvy ")
	command, _, _ = strings.Cut(command, "`")
	args := strings.Fields(command)
	if _, _, said := call(t, args...); !slices.Contains(args, "ADDRESS") || !strings.Contains(said, "ADDRESS") { // it is what there is not
		t.Errorf("`divvy %s` says %s", command, said)
	}
}

func follow(t *testing.T, g givenHost, c doctor.Check) {
	t.Helper()
	for _, line := range c.Commands[:len(c.Commands)-1] {
		if !strings.HasSuffix(line, " &&") {
			t.Errorf("after %q the next line is run in any case", line)
		}
	}
	if err := g.Run(t.Context(), c.Commands); err != nil {
		t.Fatal(err)
	}
	if after := g.Kernel.Snapshot(); after != g.before {
		t.Errorf("%q left\n%s, want\n%s", c.Commands, after, g.before)
	}
	if checks := deviceChecks(g.dir, g.Root, false); len(checks) != 0 {
		t.Errorf("afterwards it is said: %+v", checks)
	}
}

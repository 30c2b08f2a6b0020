package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
)

// claimOptions are the flags of `divvy vm claim`.
type claimOptions struct {
	machine, gpu, address, form, platform, owner, like string
	also                                               []string
	memory                                             v1alpha1.Memory
	output                                             format
}

// claimPlatforms are what a claim prints for.
var claimPlatforms = []string{string(preflight.QEMU), string(preflight.Libvirt)}

const claimText = `Give a device to a virtual machine, as root, and print what QEMU or libvirt needs for
it. The claim keeps the device until 'divvy vm release', also while no agent runs. NAME
is one that no other claim has; without it the agent chooses one.

--form says how: "passthrough" takes the whole card with all functions of its IOMMU
group from the host, "vf" one virtual function, "vgpu:TYPE" a part of an NVIDIA GPU.
Other cards of the group go only where --also names them. What the host uses is never
taken, and neither is a GPU with shares or processes: the refusal names them.

With --user the device's node below /dev/vfio is that user's until the claim ends, so
that their QEMU opens it. --memory is the virtual machine's: all of it is pinned, so it
is compared with what may be locked. --like claims what another claim has, for the
target of a migration: CLAIM is a claim of this host, or a FILE with the claim of
another one, as -o json printed it; "-" reads it. Of several claims there the one that
is called NAME counts.`

func newClaim(a *app) *cobra.Command {
	o := &claimOptions{}
	command := &cobra.Command{
		Use:   "claim [NAME] --gpu GPU --form FORM",
		Short: "Give a device to a virtual machine, and print what it needs",
		Long:  claimText,
		Example: `  sudo divvy vm claim train --gpu 0 --form passthrough --user ada --memory 64Gi
  sudo divvy vm claim --pci 0000:3b:00.4 --form vf --for libvirt
  sudo divvy vm claim desk --gpu 1 --form vgpu:nvidia-471
  ssh source divvy vm ls -o json | sudo divvy vm claim desk --gpu 0 --like -`,
		Args: argsOf(0, 1, "at most one name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.claim(cmd.Context(), o, append(args, "")[0])
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.gpu, "gpu", "", "`GPU`, by index, UUID or PCI address")
	flags.StringVar(&o.address, "pci", "", "any device, by its PCI `ADDRESS`")
	flags.StringSliceVar(&o.also, "also", nil, "`ADDRESS` of another card of the group that may go; more than once, or with commas")
	flags.StringVar(&o.form, "form", "", "`FORM`: passthrough, vf or vgpu:TYPE")
	flags.Var(&oneOf{&o.platform, claimPlatforms}, "for", "what runs the virtual machine: qemu or libvirt (default: qemu)")
	flags.StringVar(&o.owner, "user", "", "`USER` who runs the virtual machine (default: root)")
	flags.Var(&machineMemory{&o.memory}, "memory", "memory of the virtual machine, such as 64Gi")
	flags.StringVar(&o.like, "like", "", "the same form and type as `CLAIM`")
	addMachine(command, &o.machine)
	addFormat(command, &o.output)
	complete(command, "for", claimPlatforms...)
	_ = command.RegisterFlagCompletionFunc("like", a.likeNames) // the flag is there
	complete(command, "form", string(v1alpha1.BackendPassthrough), string(v1alpha1.BackendVF), string(v1alpha1.BackendVGPU)+":")
	return command
}

// claimed is the document that `divvy vm claim -o json` prints.
type claimed struct {
	Claim control.DeviceClaim `json:"claim"`
	For   preflight.Platform  `json:"for"`
	preflight.Handed
}

func (a *app) claim(ctx context.Context, o *claimOptions, name string) error {
	p, err := o.params(name)
	if err != nil {
		return usage(err)
	}
	var c *control.DeviceClaim
	asked := 0
	err = a.askMachines(ctx, o.machine, func(client *control.Client) error {
		asked++
		if o.like != "" {
			like, err := likeOf(ctx, client, o.like, name)
			if err != nil {
				return err
			}
			p.Form, p.Type = like.Form, like.Type
		}
		c, err = client.TakeDevice(ctx, p)
		return err
	})
	if err != nil {
		return err
	}
	if c.Existed && asked == 1 { // else an agent that ended made it for this command
		a.tell("claim " + c.Name + " exists already, with what is asked for: nothing was changed")
	}
	a.tellOf("claim "+c.Name, c.Notes)
	if err := a.printHeld(ctx, o, c); err != nil {
		return fmt.Errorf("claim %s is held, and what its virtual machine needs cannot be printed: %w; `divvy vm release %s` puts it back", c.Name, err, c.Name)
	}
	return nil
}

// tellOf tells what is to be known of a claim besides.
func (a *app) tellOf(claim string, notes []string) {
	for _, note := range notes {
		a.tell(text.Plain(claim, 64) + ": " + text.Plain(note, 500))
	}
}

// printHeld prints what the virtual machine of a claim needs.
func (a *app) printHeld(ctx context.Context, o *claimOptions, c *control.DeviceClaim) error {
	host, err := a.facts(ctx, "")
	if err != nil {
		return err
	}
	handover := preflight.Handover{Members: c.Members, Mediated: c.Mediated, Path: c.Path}
	if limit, known := lockLimit(c.UID); known {
		host.Locked = limit
	} else if c.UID != os.Getuid() {
		handover.LimitUnknown = c.User
	}
	ask := preflight.Question{For: preflight.Platform(o.platform), Memory: int64(min(o.memory.InBytes(), 1<<60))}
	out := claimed{Claim: *c, For: ask.For, Handed: preflight.Hand(host, handover, ask)}
	return o.output.print(a.out, out, func(w *strings.Builder) { writeClaim(w, out) })
}

// params are what the agent is asked for.
func (o *claimOptions) params(name string) (p control.TakeDeviceParams, err error) {
	p = control.TakeDeviceParams{Name: name, GPU: o.gpu}
	if o.platform == "" {
		o.platform = string(preflight.QEMU)
	}
	switch {
	case name != "" && !v1alpha1.IsName(name):
		return p, fmt.Errorf("name %q: use at most 63 lower-case letters, digits, '-', '_' and '.', starting with a letter or digit", name)
	case (o.gpu == "") == (o.address == ""):
		return p, errors.New("name one device: --gpu with an index, UUID or PCI address, or --pci with an address such as 0000:3b:00.0")
	case o.like != "" && o.form != "":
		return p, errors.New("--like says the form: leave out --form")
	}
	if at, err := pci.ParseAddress(o.gpu); err == nil {
		p.GPU, p.PCI = "", &at
	}
	if p.Form, p.Type, err = o.formOf(); err != nil {
		return p, err
	}
	if err := o.addresses(&p); err != nil {
		return p, err
	}
	owner, err := userNumber("--user", o.owner)
	if owner != nil {
		p.UID = *owner
	}
	return p, err
}

// formOf is the form that is asked for, with its type; none where another claim says them.
func (o *claimOptions) formOf() (form v1alpha1.Backend, kind string, err error) {
	word, kind, typed := strings.Cut(o.form, ":")
	form = v1alpha1.Backend(word)
	switch {
	case o.like != "":
		return "", "", nil
	case !form.ForMachines():
		return form, kind, fmt.Errorf("--form %q: use passthrough, vf or vgpu:TYPE", o.form)
	case typed && form != v1alpha1.BackendVGPU:
		return form, kind, fmt.Errorf("--form %s: only vgpu has types", o.form)
	case form == v1alpha1.BackendVGPU && kind == "":
		return form, kind, errors.New("--form vgpu: add the type, such as vgpu:nvidia-471, as the host driver numbers or names it")
	}
	return form, kind, nil
}

// addresses reads those of the device and of what may go with it.
func (o *claimOptions) addresses(p *control.TakeDeviceParams) error {
	if o.address != "" {
		at, err := pci.ParseAddress(o.address)
		if err != nil {
			return fmt.Errorf("--pci: %w", err)
		}
		p.PCI = &at
	}
	for _, one := range o.also {
		at, err := pci.ParseAddress(one)
		if err != nil {
			return fmt.Errorf("--also: %w", err)
		}
		p.Also = append(p.Also, at)
	}
	return nil
}

// likeOf finds the claim that another one is to be like. What has a whole device cannot move.
func likeOf(ctx context.Context, client *control.Client, name, called string) (*control.DeviceClaim, error) {
	all, err := client.Devices(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all.Claims, func(c control.DeviceClaim) bool { return c.Name == name })
	var like control.DeviceClaim
	if at >= 0 {
		like = all.Claims[at]
	} else if like, err = until(ctx, func() (control.DeviceClaim, error) { return claimIn(name, called) }); err != nil {
		return nil, err
	}
	return &like, movable(like)
}

// movable returns why a virtual machine with a claim's device cannot move while it runs.
func movable(c control.DeviceClaim) error {
	if c.Form == v1alpha1.BackendVGPU {
		return nil
	}
	return fmt.Errorf("claim %s has a whole device (%s), and a virtual machine with one cannot move while it runs: shut it down, release the claim, and claim a device on the target", text.Plain(c.Name, 64), text.Plain(string(c.Form), 16))
}

// mostOfClaim bounds a file with claims, in bytes.
const mostOfClaim = 1 << 20

// claimIn reads the claim of a file of `divvy vm claim -o json`, or one of a list: the only one, or else that which is called so.
func claimIn(path, called string) (c control.DeviceClaim, err error) {
	file := os.Stdin
	if path != "-" {
		if file, err = os.Open(path); errors.Is(err, os.ErrNotExist) {
			return c, fmt.Errorf("--like %s: this host has no such claim, and there is no such file", text.Plain(path, 64))
		}
		if err != nil {
			return c, err
		}
		defer file.Close()
	}
	content, err := io.ReadAll(io.LimitReader(file, mostOfClaim))
	if err != nil {
		return c, err
	}
	var document struct {
		Claim  *control.DeviceClaim  `json:"claim"`
		Claims []control.DeviceClaim `json:"claims"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		return c, fmt.Errorf("--like %s: read a claim: %w", text.Plain(path, 64), err)
	}
	if document.Claim != nil {
		document.Claims = append(document.Claims, *document.Claim)
	}
	all := document.Claims
	at := slices.IndexFunc(all, func(c control.DeviceClaim) bool { return c.Name == called })
	switch {
	case len(all) == 1:
		at = 0
	case len(all) == 0:
		return c, fmt.Errorf("--like %s: it has no claim: give what `divvy vm claim -o json` printed", text.Plain(path, 64))
	case at < 0:
		var names []string
		for _, one := range all {
			names = append(names, one.Name)
		}
		return c, fmt.Errorf("--like %s: it has %d claims (%s): claim with the name of one of them, or give a file with one", text.Plain(path, 64), len(all), text.Plain(strings.Join(names, ", "), 200))
	}
	return all[at], nil
}

// lockLimit is how much memory programs of a user may lock, as one of their processes has it. It is not known of a user without
// processes, and not for oneself: the reader's own limit is among the facts.
func lockLimit(uid int) (limit int64, known bool) {
	if uid == os.Getuid() {
		return 0, false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, false
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		status, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", uid)) {
			continue
		}
		if limits, err := os.ReadFile("/proc/" + e.Name() + "/limits"); err == nil {
			return facts.LockedOf(string(limits), string(status)), true
		}
	}
	return 0, false
}

// writeClaim writes a claim for people, with what its platform needs.
func writeClaim(w *strings.Builder, c claimed) {
	const most = 500
	fmt.Fprintf(w, "claim %s: %s (%s), for %s\n", c.Claim.Name, c.Claim.Device, formOf(c.Claim), text.Plain(c.Claim.User, 64))
	for _, s := range c.Needs {
		fmt.Fprintf(w, "\n%s:\n", s.Title)
		for line := range strings.Lines(s.Text) {
			w.WriteString("    " + text.Plain(strings.TrimRight(line, "\n"), most) + "\n")
		}
	}
	for _, f := range c.Warnings {
		fmt.Fprintf(w, "\n! %s\n%s%s\n", text.Plain(f.Evidence, most), "→ ", text.Plain(f.Remedy, most))
		if f.Command != "" {
			fmt.Fprintf(w, "$ %s\n", text.Plain(f.Command, most))
		}
	}
	fmt.Fprintf(w, "\n`divvy vm release %s` puts it back.\n", c.Claim.Name)
}

// formOf is a claim's form, with its type.
func formOf(c control.DeviceClaim) string {
	form := string(c.Form)
	if c.Type != "" {
		form += ":" + text.Plain(c.Type, 64)
	}
	return form
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/driver"
)

func newDoctor(a *app) *cobra.Command {
	var output format
	var kubernetes bool
	var archive program.Bundle
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Check what Divvy needs of this machine, and say what to do",
		Long: `Check what Divvy needs of this machine: its own files, the driver, namespaces,
shared memory, variables, agents, containers, what serves other hosts here, and the
hosts for which you have bundles. Nothing is changed. The exit status
is 1 if 'divvy run' would not work now, and 0 otherwise: warnings do not change it.
Where the agent serves virtual machines alone ('divvy agent --vm-only') it is 1 if
that agent does not work.
Inside a share the share is checked: its limit, its library, and which GPUs a
program sees there. With --bundle the exit status is 0 if the file was written.
With --kubernetes a cluster is checked instead, and there are more
flags: 'divvy doctor --kubernetes --help' lists them.`,
		Example: "  divvy doctor\n  divvy doctor -o json\n  divvy run --memory 1Gi -- divvy doctor\n  divvy doctor --bundle\n  divvy doctor --kubernetes --kubeconfig admin.conf",
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := a.checks(cmd.Context())
			print := func(w *strings.Builder) { doctor.Write(w, checks) }
			report := doctor.NewReport(checks)
			if archive.Wanted() {
				return a.writeBundle(cmd, &archive, report)
			}
			if err := output.print(a.out, report, print); err != nil {
				return err
			}
			if !report.Works {
				return program.ErrReported
			}
			return nil
		},
	}
	addFormat(command, &output)
	archive.Add(command)
	// For help only: with this flag divvy becomes the cluster's program, see forCluster.
	command.Flags().BoolVar(&kubernetes, "kubernetes", false, "check a Kubernetes cluster")
	return command
}

func (a *app) checks(ctx context.Context) []doctor.Check {
	if in := a.lookInside(ctx); in != nil {
		return a.insideChecks(ctx, in)
	}
	hosts := make(chan bundles, 1)
	go func() { hosts <- askHosts(ctx) }() // meanwhile the rest is looked at
	seen := a.lookAtAgent(ctx, "", a.endpoint(""))
	held, heldErr := gpulock.Real.All(ctx)
	seen.held = held
	seen.indexes = a.indexes(seen)
	served := sync.OnceValues(func() (daemon.Machine, error) { return a.served(seen) })
	machine, _ := served() // the check of what the driver answers tells of an error
	host := doctor.Host{
		Answers: len(machine.GPUs) > 0, Served: seen.list != nil && !seen.list.Info.Ephemeral,
		Root: "/", Tree: a.tree, Rundir: a.rundir, Limited: limitedIn(seen.system), MachinesOnly: seen.machinesOnly(),
		LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), Simgpu: seen.simgpu(), Elsewhere: hostsOfBundles(),
	}
	if seen.list != nil && seen.list.SwapMemory != nil {
		host.SwapMemory = seen.list.SwapMemory.Allowed
	}
	checks := append(host.Run(ctx), seen.answerChecks(served)...)
	variables, among := a.visibleChecks(ctx, seen, served)
	checks = slices.Concat(checks, variables, seen.checks(), a.roomChecks(ctx, seen, among), seen.leftChecks(), deviceChecks(seen.system, "/", host.Served), ledgerChecks(seen.system), seen.leftProcesses(ctx),
		seen.libraryChecks(ctx, doctor.LibraryAt(a.tree.Library(string(driver.CUDA)))), []doctor.Check{seen.clockCheck()})
	endpoints, err := a.endpoints(ctx, "")
	if err != nil {
		checks = append(checks, doctor.Check{ID: "simulated", Name: "simulated machines", Status: doctor.Warn, Found: err.Error()})
	}
	delete(endpoints, "")
	for _, simulated := range a.lookAtAgents(ctx, endpoints) {
		simulated.bySystem = filepath.Base(seen.simgpu()) == simulated.machine
		checks = slices.Concat(checks, simulated.checks(), simulated.libraryChecks(ctx, doctor.LibraryAt(a.tree.Library(string(driver.CUDA)))))
	}
	checks = append(checks, seen.configurationChecks(daemon.DefaultConfig, served)...)
	checks = append(checks, serveChecks(ctx, time.Now())...)
	checks = append(checks, (<-hosts).checks(time.Now())...)
	if heldErr != nil {
		return append(checks, doctor.Check{ID: "gpu.held", Name: "GPUs held", Status: doctor.Warn, Found: heldErr.Error()})
	}
	return append(checks, seen.holderChecks(held)...)
}

// indexes are those of the machine's GPUs by UUID. The driver is asked only where no agent tells them and a check needs them.
func (a *app) indexes(seen sight) map[string]int {
	if seen.list == nil && len(seen.held) == 0 && len(changesLeft(seen.dir)) == 0 {
		return nil
	}
	m, err := a.served(seen)
	if err != nil {
		return nil // UUIDs name them
	}
	all := map[string]int{}
	for _, g := range m.GPUs {
		all[g.UUID] = g.Index
	}
	return all
}

// served are the GPUs that a system agent serves here, or would serve.
func (a *app) served(seen sight) (daemon.Machine, error) {
	if seen.list == nil || seen.list.Info.Ephemeral {
		return daemon.AskMachine(a.endpoint("").System(), a.tree, seen.simgpu())
	}
	m := daemon.Machine{Unknown: len(seen.list.LeftOut)}
	for _, g := range seen.list.GPUs {
		m.GPUs = append(m.GPUs, backend.GPU{Index: g.Index, UUID: g.UUID, Total: g.Total, Reserved: g.Reserved, ContextBytes: g.ContextBytes})
	}
	return m, nil
}

// configurationChecks check the system agent's configuration, if there is one, also against
// the machine's GPUs, and say what it gives the reader. It is the one with which the agent
// started, and else the one at path, with which one would start.
func (s sight) configurationChecks(path string, served func() (daemon.Machine, error)) []doctor.Check {
	var agent control.Info // none, or a user's own
	serves := s.list != nil && !s.list.Info.Ephemeral
	if serves {
		agent = s.list.Info
		path = s.configFile(path)
	}
	c := doctor.Check{ID: "agent.configuration", Name: "agent configuration", Status: doctor.OK, Found: path}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if agent.Config == daemon.DefaultConfig {
			c.Status, c.Found, c.Next = doctor.Warn, path+", with which the agent started, is gone: it goes on with what it read", startAgain()
			return []doctor.Check{c}
		}
		return nil // a container's agent reads a file of the container's
	}
	machine, unknown := served()
	rules, err := daemon.ReviewConfig(path, machine)
	_, sum := rules.Source()
	if unknown != nil {
		c.Found += " (not compared with the machine's GPUs: " + unknown.Error() + ")"
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		c.Found = path + " (only root can read it)"
	case err != nil:
		c.Status, c.Found, c.Next = doctor.Fail, err.Error(), "as root, correct it: a system agent does not start with it"
		if serves {
			c.Status = doctor.Warn // the agent goes on with what it read
		}
	case serves && agent.Config == "":
		c.Status, c.Found, c.Next = doctor.Warn, path+" is not in force: the agent started without it", startAgain()
	case serves && agent.ConfigSum != sum:
		c.Status, c.Found, c.Next = doctor.Warn, path+" is not in force: the agent started with another content", startAgain()
	default:
		return []doctor.Check{c, rights(rules, os.Getuid())}
	}
	return []doctor.Check{c}
}

// configFile is the configuration with which the agent started that serves every user, and else another one.
func (s sight) configFile(otherwise string) string {
	if s.list == nil || s.list.Info.Ephemeral {
		return otherwise
	}
	return cmp.Or(s.list.Info.Config, otherwise)
}

// startAgain is what brings a configuration into force.
func startAgain() string {
	if os.Getuid() == 0 {
		return "start the agent again: shares go on meanwhile"
	}
	return "ask an administrator to start the agent again: shares go on meanwhile"
}

// rights says what a configuration gives a user.
func rights(rules *agentconfig.Config, uid int) doctor.Check {
	c := doctor.Check{ID: "agent.rights", Name: "your rights", Status: doctor.OK, Found: rules.Limits(uid).String()}
	if rules.MayOvercommit(uid) {
		c.Found += "; you may use --overcommit"
	} else {
		c.Found += "; you may not use --overcommit: neither you nor a group of yours is listed below overcommit"
	}
	return c
}

package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/doctor/bundle"
	"github.com/divvy-gpu/divvy/internal/redaction"
)

// writeBundle collects what is known of this machine in a file.
func (a *app) writeBundle(cmd *cobra.Command, file *program.Bundle, report doctor.Report) error {
	config := a.lookAtAgent(cmd.Context(), "", a.endpoint("")).configFile(daemon.DefaultConfig)
	items := []bundle.Item{
		{Name: "doctor.json", Read: func(context.Context) ([]byte, error) { return json.MarshalIndent(report, "", "  ") }},
		{Name: "listing.json", Read: a.listed},
		bundle.Text("environment.txt", strings.Join(redaction.Environment(os.Environ()), "\n")+"\n"),
		bundle.File("agent.yaml", config),
		bundle.Program("agent.log", "journalctl", "--unit", "divvy-agent", "--lines", "2000", "--no-pager", "--output", "short-iso"),
		bundle.Program("kernel.log", "sh", "-c", "dmesg | grep -i -E 'nvrm|nvidia|xid|divvy|oom' | tail -n 500"),
		bundle.Program("nvidia-smi.txt", "nvidia-smi", "-q"),
		bundle.Program("devices.txt", "sh", "-c", "ls -l /dev/nvidia* /dev/shm /run/divvy 2>&1"),
		bundle.Files("kernel.txt", "/proc/version", "/proc/cmdline", "/proc/uptime", "/etc/os-release", "/proc/driver/nvidia/version", "/proc/driver/nvidia/params"),
		bundle.Files("machine.txt", "/proc/meminfo", "/proc/self/cgroup", "/proc/self/limits", "/proc/filesystems"),
		bundle.File("mounts.txt", "/proc/self/mountinfo"),
		bundle.File("modules.txt", "/proc/modules"),
		bundle.File("ld.so.conf.txt", "/etc/ld.so.conf"),
	}
	for _, folder := range []string{"/etc/cdi", "/var/run/cdi"} {
		found, _ := filepath.Glob(filepath.Join(folder, "*")) // the pattern is right
		for _, from := range found {
			items = append(items, bundle.File("cdi"+strings.TrimPrefix(from, "/var")+".txt", from))
		}
	}
	return file.Save(cmd.Context(), a.out, items)
}

// listed is what agents and drivers tell, with command lines that have no secrets.
func (a *app) listed(ctx context.Context) ([]byte, error) {
	asked := a.drivers()
	defer asked.close()
	all, err := asked.survey(ctx, "")
	if err != nil {
		return nil, err
	}
	for i := range all.agents {
		for j := range all.agents[i].Tenants {
			t := &all.agents[i].Tenants[j]
			if t.UID != os.Getuid() && len(t.Command) > 0 {
				t.Command = []string{filepath.Base(t.Command[0])} // root sees all of others' commands, and passes them to nobody
			}
			t.Command = redaction.Arguments(t.Command)
		}
	}
	return json.MarshalIndent(map[string]any{"agents": all.agents, "unserved": all.unserved, "away": all.away}, "", "  ")
}

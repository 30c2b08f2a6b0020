package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

func newSimgpuReport(a *app) *cobra.Command {
	var output format
	command := &cobra.Command{
		Use:   "report [NAME]",
		Short: "Tell what truly happens on a simulated machine",
		Long: `Tell what truly happens on a simulated machine, from the simulated driver's own
tables: memory of each process by its use, the peak of each GPU and of each
tenant, GPU time. Tests compare Divvy's figures with these. Memory of processes
that have died is freed first. JSON has all figures, in bytes and nanoseconds.`,
		Example: `  divvy simgpu report
  divvy simgpu report a100-80g -o json | jq '.gpus[0].used'`,
		Args: instanceArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			instance, err := a.instance(only(args))
			if err != nil {
				return err
			}
			report, err := a.simgpus().Report(cmd.Context(), instance)
			if err != nil {
				return err
			}
			return output.print(a.out, report, func(w *strings.Builder) { printReport(w, report) })
		},
	}
	addFormat(command, &output)
	return command
}

func printReport(w *strings.Builder, r *simgpu.Report) {
	gpus := columns.Table{}
	gpus.Row("GPU", "MODEL", "UUID", "TOTAL", "RESERVED", "USED", "PEAK", "BUSY")
	for _, g := range r.GPUs {
		gpus.Row(strconv.Itoa(g.Index), g.Name, g.UUID, size(g.Total), size(g.Reserved), size(g.Used), size(g.Peak), gpuTime(g.BusyNs))
	}
	gpus.Print(w)
	w.WriteByte('\n')
	printReportProcesses(w, r.Processes)
	printReportTenants(w, r.Tenants)
}

func printReportProcesses(w *strings.Builder, processes []simgpu.ProcessReport) {
	if len(processes) == 0 {
		w.WriteString("No process uses a GPU.\n")
		return
	}
	t := columns.Table{}
	t.Row("PID", "COMMAND", "TENANT", "GPU", "USED", "CONTEXT", "LINEAR", "POOL", "VMM", "ARRAY", "MANAGED", "GRAPH", "IMPORTED", "TIME")
	for _, p := range processes {
		for _, g := range p.GPUs {
			t.Row(strconv.Itoa(p.PID), p.Command, dash(p.Tenant), strconv.Itoa(g.Index), size(g.Used), size(g.Context), size(g.Linear),
				size(g.Pool), size(g.VMM), size(g.Array), size(g.Managed), size(g.Graph), size(g.Imported), gpuTime(g.GPUNs))
		}
	}
	t.Print(w)
}

// printReportTenants leaves out tenants that never used anything.
func printReportTenants(w *strings.Builder, tenants []simgpu.TenantReport) {
	t := columns.Table{}
	t.Row("TENANT", "GPU", "USED", "PEAK", "TIME")
	for _, tenant := range tenants {
		for _, g := range tenant.GPUs {
			if g.Peak > 0 || g.GPUNs > 0 {
				t.Row(dash(tenant.Tenant), strconv.Itoa(g.Index), size(g.Used), size(g.Peak), gpuTime(g.GPUNs))
			}
		}
	}
	if len(t.Rows) > 1 {
		w.WriteByte('\n')
		t.Print(w)
	}
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// gpuTime writes nanoseconds for people.
func gpuTime(ns uint64) string {
	d := time.Duration(min(ns, 1<<62))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.String()
}

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/doctor/bundle"
	"github.com/divvy-gpu/divvy/internal/doctor/cluster"
)

// doctorOptions are the flags of divvy doctor --kubernetes.
type doctorOptions struct {
	access
	output string
	bundle program.Bundle
}

func newDoctor(a *app) *cobra.Command {
	var o doctorOptions
	command := &cobra.Command{
		Use:   "doctor --kubernetes",
		Short: "Check Divvy in a Kubernetes cluster, and say what to do",
		Long: `Check Divvy in a Kubernetes cluster: its webhook, who may ask it, its controller,
who places pods, and its agents. Nothing is changed. It needs the rights to read
Divvy's namespace and the webhook configurations, and in mode slots the events of
nodes. The exit status is 1 if pods cannot get GPUs.`,
		Example: "  divvy doctor --kubernetes\n  divvy doctor --kubernetes --kubeconfig admin.conf",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd, a) },
	}
	o.bundle.Add(command)
	flags := command.Flags()
	flags.Bool("kubernetes", true, "check a Kubernetes cluster")
	o.flags(flags)
	flags.StringVar(&o.namespace, "namespace", "divvy-system", "where Divvy is installed")
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	return command
}

func (o *doctorOptions) run(cmd *cobra.Command, a *app) error {
	if o.output != "table" && o.output != "json" {
		return program.Usage(fmt.Errorf("output %q: use table or json", o.output))
	}
	reader, err := o.connect(a, "divvy-doctor")
	if err != nil {
		return err
	}
	looked := cluster.Cluster{Client: reader.Client, Namespace: o.namespace, Port: cluster.Open}
	checks := looked.Run(cmd.Context())
	if o.bundle.Wanted() {
		return o.save(cmd, a, looked, doctor.NewReport(checks))
	}
	if o.output == "json" {
		encoder := json.NewEncoder(a.out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(doctor.NewReport(checks)); err != nil {
			return fmt.Errorf("write the checks: %w", err)
		}
	} else {
		var text strings.Builder
		doctor.Write(&text, checks)
		program.Say(a.out, "%s", strings.TrimSuffix(text.String(), "\n"))
	}
	if !doctor.NewReport(checks).Works {
		return program.ErrReported
	}
	return nil
}

// save writes what is known of the cluster to a file.
func (o *doctorOptions) save(cmd *cobra.Command, a *app, looked cluster.Cluster, report doctor.Report) error {
	items, err := looked.Items(cmd.Context())
	if err != nil {
		items = append(items, bundle.Text("cluster/pods.txt", err.Error()+"\n"))
	}
	items = append(items, bundle.Item{Name: "doctor.json", Read: func(context.Context) ([]byte, error) {
		return json.MarshalIndent(report, "", "  ")
	}})
	return o.bundle.Save(cmd.Context(), a.out, items)
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend/remote"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/remote/claimed"
	"github.com/divvy-gpu/divvy/internal/remote/host"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/issuer"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/servefile"
	"github.com/divvy-gpu/divvy/internal/version"
)

// serveOptions are the flags of divvy serve --kubernetes.
type serveOptions struct {
	cluster                        connection
	issuer                         issuer.Client
	node, listen, instance, driver string
}

func newServe(a *app) *cobra.Command {
	o := serveOptions{cluster: connection{qps: 50, burst: 100}}
	command := &cobra.Command{
		Use:   "serve --kubernetes",
		Short: "Give claims of a Kubernetes cluster their shares of this node's GPUs",
		Long: `Give pods of other nodes, and of this one, the shares that the cluster's scheduler
allocated to them of the GPUs that this node's agent publishes with --pool. A node
shows a certificate of the controller's for one claim, and gets at most what the API
server says that the claim has here. The agent grants the shares, and may start anew
meanwhile. They end with this server.`,
		Example: "  divvy serve --kubernetes --node-name gpu-1",
		Args:    program.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), a) },
	}
	flags := command.Flags()
	flags.Bool("kubernetes", true, "serve claims of a Kubernetes cluster")
	o.cluster.flags(flags)
	flags.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "the node's name in the cluster (default: $NODE_NAME)")
	flags.StringVar(&o.listen, "listen", ":"+strconv.Itoa(wire.Port), "`ADDRESS` and port where nodes connect")
	flags.StringVar(&o.driver, "driver-root", "", "where the host's files are seen, for a server in a container")
	issuerFlags(flags, &o.issuer)
	flags.StringVar(&o.instance, "simgpu-dir", "", "give shares of the simulated machine in this directory")
	flags.Lookup("simgpu-dir").Hidden = true
	return command
}

// run serves until the context is done.
func (o *serveOptions) run(ctx context.Context, a *app) error {
	if o.issuer.Address == "" {
		return program.Usage(errors.New("nobody says who may have which share: give --pool-issuer"))
	}
	if o.node == "" {
		return program.Usage(errors.New("the node's name is missing: give --node-name, or set NODE_NAME from spec.nodeName"))
	}
	log := slog.New(slog.NewTextHandler(a.err, nil))
	client, err := o.cluster.connect(log, "divvy-serve")
	if err != nil {
		return err
	}
	shown := &shown{ask: o.issuer.Host, log: log}
	secured, err := shown.config(ctx)
	if err != nil {
		return err
	}
	given, err := o.given(a, log)
	if err != nil {
		return err
	}
	defer func() { _ = given.Close() }() // which may have ended
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.InfoContext(ctx, "serving claims", "node", o.node, "address", listener.Addr())
	go shown.keep(ctx)
	s := server.Server{Host: claimed.New(o.node, client, given), TLS: secured, Name: identity.Client, Log: log}
	return s.Serve(ctx, listener)
}

// given makes shares by this machine's agent.
func (o *serveOptions) given(a *app, log *slog.Logger) (*host.Host, error) {
	divvy, err := a.tree.Divvy()
	if err != nil {
		return nil, err
	}
	endpoint := control.Endpoint{Rundir: rundir.Path(), Simgpu: o.instance}
	finder := driver.Finder{Root: o.driver, Instance: o.instance}
	return host.New(host.Options{
		Agent: func(ctx context.Context) (*control.Client, error) { return control.Dial(ctx, endpoint.Socket()) },
		// A holder finds the agent as `divvy run` does, which starts none where the system's runs.
		Simgpu: o.instance, Holder: []string{divvy, "hold"}, Env: host.Environment(os.Environ()),
		Lacks: func(string) ([]string, error) { return remote.Lacks(a.tree, finder) }, Version: version.Full(), Log: log,
	}, &servefile.File{}), nil
}

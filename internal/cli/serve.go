package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/backend/remote"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/remote/host"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/servefile"
	"github.com/divvy-gpu/divvy/internal/version"
)

const serveText = `Give shares of this machine's GPUs to programs on other hosts, which run there with
'divvy run --remote'. A share is one like any other: the agent grants it, the limit
holds, and 'divvy ls' shows it with its client and the client's host.

Every connection is encrypted, and both sides show certificates: 'divvy serve init'
makes those of this host, and 'divvy serve admit NAME' one for a client. The file
serve.yaml in DIR says what each client may have. It is read again when it changes;
the shares of a client that it no longer has end.

As root, the shares of a client are those of the local user that the file names, and
the system's agent grants them. A user's own server gives what that user could have
with 'divvy run'. All shares end with the server.`

// serveFlags are the flags of `divvy serve`.
type serveFlags struct {
	listen, dir, simgpu string
	gpus                gpuNames
}

func newServe(a *app) *cobra.Command {
	var f serveFlags
	command := &cobra.Command{
		Use:     "serve",
		Short:   "Give shares of this machine's GPUs to programs on other hosts",
		Long:    serveText,
		Example: "  divvy serve\n  sudo divvy serve --gpus 0,1\n  divvy serve --listen localhost:7117 --simgpu a100-80g",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serveRemote(cmd.Context(), f) },
	}
	flags := command.Flags()
	flags.StringVar(&f.listen, "listen", "", "`ADDRESS` and port where clients connect, such as :7117 (default: that of the file, or :7117)")
	flags.Var(&f.gpus, "gpus", "the GPUs that clients may have, such as 0,2 (default: those of the file, or all)")
	flags.StringVar(&f.simgpu, "simgpu", "", "give shares of the simulated `MACHINE`, started if needed")
	command.PersistentFlags().StringVar(&f.dir, "dir", "", "`DIR` with the certificates and serve.yaml (default: "+systemServeDir+" of root, else ~/.config/divvy/serve)")
	command.AddCommand(newServeInit(a, &f.dir), newServeAdmit(a, &f.dir), newServeExpel(a, &f.dir))
	return command
}

// systemServeDir is where root's server has its files.
const systemServeDir = "/etc/divvy/serve"

// serveFileName is the file of a server in its directory.
const serveFileName = "serve.yaml"

// serveDir is the directory of a server's files.
func serveDir(given string) (string, error) {
	switch {
	case given != "":
		return filepath.Abs(given)
	case os.Getuid() == 0:
		return systemServeDir, nil
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the directory of the server's files: %w: name one with --dir", err)
	}
	return filepath.Join(config, "divvy", "serve"), nil
}

// serveUsers judges the local users in a server's file: a user's own server has no others.
func serveUsers() servefile.Users {
	if os.Getuid() != 0 {
		return nil
	}
	return func(name string) error {
		_, err := user.Lookup(name)
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) {
			return fmt.Errorf("there is no user %q", name)
		}
		return err
	}
}

// serveRemote serves other hosts until the context is done.
func (a *app) serveRemote(ctx context.Context, f serveFlags) error {
	if !signal.Ignored(unix.SIGHUP) { // a terminal that is closed ends it as SIGTERM does, unless it was started with nohup
		hangup, stop := signal.NotifyContext(ctx, unix.SIGHUP)
		defer stop()
		ctx = hangup
	}
	log := slog.New(slog.NewTextHandler(a.err, nil))
	supervisor, err := daemon.TakeSupervisor()
	if err != nil {
		return err
	}
	dir, err := serveDir(f.dir)
	if err != nil {
		return err
	}
	secured, err := identity.Server(dir)
	if err != nil {
		return err
	}
	watched := newServeFile(filepath.Join(dir, serveFileName), serveUsers())
	file, err := watched.read()
	if err != nil {
		return err
	}
	instance, err := a.ownMachine(ctx, f.simgpu)
	if err != nil {
		return err
	}
	if err := a.expectGPUs(ctx, instance); err != nil {
		return err
	}
	given, err := a.givenBy(instance, f, file, watched.Look, log)
	if err != nil {
		return err
	}
	defer func() { _ = given.Close() }() // which may have ended
	gpus, err := given.Check(ctx)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(f.listen, file.Listen))
	if err != nil {
		return fmt.Errorf("%w: end what has the port, if it is in use, or name an ADDRESS:PORT of this machine with --listen, such as :7117", err)
	}
	log.InfoContext(ctx, "serving other hosts", "address", listener.Addr(), "gpus", gpus, "clients", len(file.Clients))
	tell := func(changes ...string) {
		if err := supervisor.Tell(changes...); err != nil {
			log.WarnContext(ctx, "cannot say how the service is", "error", err)
		}
	}
	tell("READY=1", fmt.Sprintf("STATUS=serving %d GPUs at %s", gpus, listener.Addr()))
	warnOf(ctx, log, file)
	go watched.follow(ctx, log, func(now *servefile.File) { replaced(ctx, log, given, f, file, now) })
	s := server.Server{Host: given, TLS: secured, Name: given.Name, Log: log}
	stopping := context.AfterFunc(ctx, func() { tell("STOPPING=1") })
	defer stopping()
	return s.Serve(ctx, listener)
}

// errNothing is why a machine without a driver serves nobody.
var errNothing = errors.New("`divvy serve` runs on the machine that has the GPUs: install the driver if this is it; simulated ones are given by `divvy serve --simgpu a100-80g`")

// expectGPUs returns an error if there is no driver and nobody who serves a simulated machine in its place.
func (a *app) expectGPUs(ctx context.Context, instance string) error {
	err := a.expectDriver(ctx, driver.Finder{Instance: instance, LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))})
	if missing := new(driver.MissingError); errors.As(err, &missing) && instance == "" {
		return fmt.Errorf("%s: %w", missing.Found(), errNothing)
	}
	return err
}

// replaced has a file that has changed count.
func replaced(ctx context.Context, log *slog.Logger, given *host.Host, f serveFlags, first, now *servefile.File) {
	if f.listen == "" && now.Listen != first.Listen {
		log.WarnContext(ctx, "listen of the file has changed, and counts when the server is started again", "listen", now.Listen, "serving", first.Listen)
	}
	warnOf(ctx, log, now)
	given.Replace(now)
}

// givenBy is what the flags and the file give to clients. It has the file looked at for a client that it does not have.
func (a *app) givenBy(instance string, f serveFlags, file *servefile.File, look func(), log *slog.Logger) (*host.Host, error) {
	divvy, err := a.tree.Divvy()
	if err != nil {
		return nil, err
	}
	var machine []string
	if f.simgpu != "" {
		machine = []string{"--simgpu", f.simgpu}
	}
	return host.New(host.Options{
		Agent:  func(ctx context.Context) (*control.Client, error) { return a.serveAgent(ctx, instance) },
		Simgpu: instance, GPUs: f.gpus.list, Holder: []string{divvy, holdCommand},
		Attendant: append([]string{divvy, attendCommand}, machine...), Run: append([]string{divvy, "run"}, machine...), Env: host.Environment(os.Environ()),
		Lacks: a.lacking, Look: look,
		Version: version.Full(), Log: log,
	}, file), nil
}

// serveAgent connects to the agent whose GPUs are given. Root's server starts none: an own agent would serve root alone.
func (a *app) serveAgent(ctx context.Context, instance string) (*control.Client, error) {
	endpoint, starter := a.endpoint(instance), control.Starter{Say: a.tell, Hidden: hidden}
	if os.Getuid() == 0 && instance == "" {
		return reachSystem(ctx, endpoint, starter)
	}
	return control.Ensure(ctx, endpoint, starter)
}

// lacking are the functions of the client's libraries that the driver does not have, of a simulated machine if one is named.
func (a *app) lacking(instance string) ([]string, error) {
	return remote.Lacks(a.tree, driver.Finder{Instance: instance})
}

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// admission is what `divvy serve admit` is told.
type admission struct {
	user, class, out    string
	memory              v1alpha1.Memory
	cores, shares, days positive
	commands            bool
	environment         []string
}

// usualDays is how long a bundle is valid. More than mostDays are no different: they are longer than any authority is, and many more
// are no [time.Duration].
const (
	usualDays = 365
	mostDays  = 36_500
)

const admitText = `Let a client in, or change what it may have: enter it in serve.yaml, and write a bundle,
the one file that the client needs. It has a private key, which is kept nowhere else:
bring it to the client's machine by a way that nobody can read, into
~/.config/divvy/remote, or /etc/divvy/remote for root. The file must end in .pem.

Each bound counts for all shares of the client together, and what is left out is not
bounded. For a client that is there already, bounds without a flag stay as they are,
and the bundle is a new one beside the old, which is valid until its time is over.
Expel a client first whose bundle somebody else may have.`

func newServeAdmit(a *app, named *string) *cobra.Command {
	o := &admission{days: usualDays}
	command := &cobra.Command{
		Use:   "admit NAME",
		Short: "Let a client in, and write its bundle",
		Long:  admitText,
		Example: `  sudo divvy serve admit ada --user ada --memory 48Gi --shares 4
  sudo divvy serve admit ci --user ci --memory 8Gi --class offline --days 30 --out ci.pem
  sudo divvy serve admit bea --user bea --commands --environment LANG,'SLURM_*'`,
		Args: argsOf(1, 1, "the name of the client, such as: divvy serve admit ada --memory 48Gi"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := serveDir(*named)
			if err != nil {
				return err
			}
			return a.admit(cmd, o, dir, args[0])
		},
	}
	flags := command.Flags()
	flags.Var(&word{"USER", &o.user}, "user", "the user of this machine whose the client's shares are; root's server needs it")
	flags.Var(&memoryFlag{&o.memory}, "memory", "the most memory of all its shares together, such as 48Gi")
	flags.Var(&o.cores, "cores", "the most cores guaranteed to all its shares together, in percent of one GPU's time: 200 is two GPUs")
	flags.Var(&o.shares, "shares", "the most shares at once; one of two GPUs is two")
	flags.Var(&word{"CLASS", &o.class}, "class", "the class that its shares have, online or offline (default: as it asks)")
	flags.BoolVar(&o.commands, "commands", false, "let it run commands on this machine (divvy run --on)")
	flags.StringSliceVar(&o.environment, "environment", nil, "`VARIABLES` that its commands may bring along, such as LANG,'SLURM_*'")
	flags.Var(&o.days, "days", "for how many days the bundle is valid")
	flags.Var(&word{"FILE", &o.out}, "out", "where the bundle is written, - for standard output (default: NAME-HOST.pem)")
	return command
}

// client is what the file has of a client, with what the flags change.
func (o *admission) client(cmd *cobra.Command, c servefile.Client) (servefile.Client, error) {
	given := cmd.Flags().Changed
	if given("user") {
		if serveUsers() == nil {
			return c, usage(errors.New("--user: the server runs as you, whose all shares are: leave it out, or run the server as root"))
		}
		c.User = o.user
	}
	if given("memory") {
		if c.Memory = o.memory.InBytes(); c.Memory == 0 {
			return c, usage(fmt.Errorf("--memory %s: give an amount such as 48Gi: it is of all shares together", o.memory))
		}
	}
	if given("cores") {
		c.Cores = int(o.cores)
	}
	if given("shares") {
		c.Shares = int(o.shares)
	}
	if given("class") {
		c.Class = v1alpha1.Class(o.class)
	}
	if given("commands") {
		c.Commands = o.commands
	}
	if given("environment") {
		c.Environment = o.environment
	}
	return c, nil
}

// admit enters a client in the server's file and writes its bundle. Nothing is changed where one of them fails.
func (a *app) admit(cmd *cobra.Command, o *admission, dir, name string) error {
	if !v1alpha1.IsName(name) {
		return usage(fmt.Errorf("client's name %q: use at most 63 lower-case letters, digits, '-', '_' and '.', starting with a letter or digit", name))
	}
	unlock, err := lockServe(dir)
	if err != nil {
		return err
	}
	defer unlock()
	authority, err := identity.Open(dir)
	if err != nil {
		return err
	}
	read := &serveFile{path: filepath.Join(dir, serveFileName), users: serveUsers()}
	file, err := read.read()
	if err != nil {
		return err
	}
	bundle, err := authority.Issue(name, time.Duration(min(o.days, mostDays))*24*time.Hour)
	if err != nil {
		return err
	}
	bundle.Port = portOf(file.Listen)
	before, known := file.Clients[name]
	client, err := o.client(cmd, before)
	if err != nil {
		return err
	}
	client.Name = name
	if !known { // what an expelled client of that name had does not count
		client.Since = bundle.Issued()
	}
	edited, err := servefile.Admit(read.content, client, serveUsers())
	if err != nil {
		return err
	}
	if err := a.handOut(o, dir, bundle, read.content, edited); err != nil {
		return err
	}
	if text := rootText(client); text != "" {
		a.tell(text)
	}
	return nil
}

// handOut writes a bundle and the server's file.
func (a *app) handOut(o *admission, dir string, bundle *identity.Bundle, before, edited []byte) error {
	text, err := bundle.Encode()
	if err != nil {
		return err
	}
	out := cmp.Or(o.out, bundle.Name()+"-"+bundle.Hosts[0]+".pem")
	if out != "-" {
		if err := identity.WriteNew(out, text, 0o600); errors.Is(err, identity.ErrExists) {
			return fmt.Errorf("%w: move it away, or name another file with --out", err)
		} else if err != nil {
			return err
		}
	}
	if !slices.Equal(before, edited) {
		if err := identity.Replace(filepath.Join(dir, serveFileName), edited, 0o600); err != nil {
			if out != "-" {
				err = errors.Join(err, os.Remove(out))
			}
			return err
		}
	}
	if out == "-" {
		_, err = a.out.Write(text)
		return err
	}
	return a.line(fmt.Sprintf("%s is client %s's bundle for %s, valid until %s. Its key is nowhere else.\nBring it into ~/.config/divvy/remote on the client's machine.",
		out, bundle.Name(), strings.Join(bundle.Hosts, ", "), bundle.NotAfter().UTC().Format(time.DateOnly)))
}

// portOf is the port of an address, 0 for the usual one.
func portOf(listen string) int {
	_, text, err := net.SplitHostPort(listen)
	if port, wrong := strconv.Atoi(text); err == nil && wrong == nil && port != servefile.Port {
		return port
	}
	return 0
}

func newServeExpel(a *app, named *string) *cobra.Command {
	return &cobra.Command{
		Use:   "expel NAME",
		Short: "Take a client out, and end its shares",
		Long: `Take a client out of serve.yaml. A server that runs ends its connections, and with them
its shares and commands. Its bundles are of no use from then on, also when a client of
that name is let in again.`,
		Example: `  sudo divvy serve expel ada`,
		Args:    argsOf(1, 1, "the name of the client, as serve.yaml has it"),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := serveDir(*named)
			if err != nil {
				return err
			}
			return a.expel(dir, args[0])
		},
	}
}

// expel takes a client out of the server's file.
func (a *app) expel(dir, name string) error {
	unlock, err := lockServe(dir)
	if err != nil {
		return err
	}
	defer unlock()
	read := &serveFile{path: filepath.Join(dir, serveFileName), users: serveUsers()}
	file, err := read.read()
	if err != nil {
		return err
	}
	if _, there := file.Clients[name]; !there {
		return fmt.Errorf("%s has no client %q", filepath.Join(dir, serveFileName), name)
	}
	edited, err := servefile.Expel(read.content, name, serveUsers())
	if err != nil {
		return err
	}
	if err := identity.Replace(filepath.Join(dir, serveFileName), edited, 0o600); err != nil {
		return err
	}
	return a.line("Client " + name + " is out.")
}

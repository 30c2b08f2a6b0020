package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

func newServeInit(a *app, named *string) *cobra.Command {
	var renew bool
	command := &cobra.Command{
		Use:   "init [HOST...]",
		Short: "Make the certificates and the file of a server",
		Long: `Make what 'divvy serve' needs: an authority, which signs the certificates of its
clients, a certificate of its own, and the file serve.yaml, which says who may have
what. HOST are the names and addresses by which clients reach this machine; left out,
they are those that it has.

What is there is never overwritten. With --renew only the server's certificate is
made anew, for other names and addresses if some are given, and serve.yaml if it is
gone. Bundles of clients stay valid, and a server that runs uses it at once.`,
		Example: `  sudo divvy serve init
  sudo divvy serve init gpu1.example.com 10.0.0.5
  sudo divvy serve init --renew gpu1.example.com 10.0.0.6`,
		RunE: func(cmd *cobra.Command, hosts []string) error {
			dir, err := serveDir(*named)
			if err != nil {
				return err
			}
			if renew {
				return a.renewServer(dir, hosts)
			}
			if len(hosts) == 0 {
				hosts = ownHosts(cmd.Context())
			}
			return a.initServer(dir, hosts)
		},
	}
	command.Flags().BoolVar(&renew, "renew", false, "make the server's certificate anew, and keep the authority and serve.yaml")
	return command
}

// initServer makes the files of a server. Serve.yaml is left if it is there: it may have been written by hand.
func (a *app) initServer(dir string, hosts []string) error {
	made, err := identity.Make(dir, hosts)
	if err != nil {
		return usageOfHosts(err)
	}
	file := filepath.Join(dir, serveFileName)
	if err := writeServeFile(file); err != nil {
		return err
	}
	return a.line(fmt.Sprintf("%s has the server's authority and certificate, for %s.\nLet clients in with `divvy serve admit NAME`; %s says what each may have.",
		dir, strings.Join(made.Hosts(), ", "), file))
}

// writeServeFile writes a file without clients, where there is none.
func writeServeFile(path string) error {
	err := identity.WriteNew(path, servefile.Template(os.Getuid() == 0), 0o600)
	if errors.Is(err, identity.ErrExists) {
		return nil
	}
	return err
}

// renewServer makes a server's certificate anew.
func (a *app) renewServer(dir string, hosts []string) error {
	unlock, err := lockServe(dir)
	if err != nil {
		return err
	}
	defer unlock()
	authority, err := identity.Open(dir)
	if err != nil {
		return err
	}
	if err := writeServeFile(filepath.Join(dir, serveFileName)); err != nil {
		return err
	}
	before := authority.Hosts()
	if err := authority.Renew(hosts); err != nil {
		return usageOfHosts(err)
	}
	text := fmt.Sprintf("The server's certificate is new, for %s.", strings.Join(authority.Hosts(), ", "))
	if !slices.Equal(before, authority.Hosts()) {
		text += "\nBundles that are out name its old names and addresses: `divvy serve admit NAME` writes one with the new."
	}
	return a.line(text)
}

// usageOfHosts marks names that no server can have as wrong usage.
func usageOfHosts(err error) error {
	if errors.Is(err, identity.ErrHosts) {
		return usage(err)
	}
	return err
}

// ownHostsTime is how long a name server is waited for.
const ownHostsTime = 2 * time.Second

// ownHosts are the names and addresses of this machine: those of its name, and those from which it reaches others. Addresses of
// bridges for containers and virtual machines are none of them: other machines have the same.
func ownHosts(ctx context.Context) (hosts []string) {
	add := func(host string) {
		if host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ownHostsTime)
	defer cancel()
	if name, err := os.Hostname(); err == nil && name != "localhost" {
		add(strings.ToLower(name))
		if full, err := net.DefaultResolver.LookupCNAME(ctx, name); err == nil && strings.HasPrefix(strings.ToLower(full), strings.ToLower(name)+".") {
			add(strings.ToLower(strings.TrimSuffix(full, ".")))
		}
		found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", name) // a name that nothing resolves is still a name
		for _, address := range found {
			if address = address.Unmap(); address.IsGlobalUnicast() {
				add(address.String())
			}
		}
	}
	// Connecting such a socket sends nothing: it asks the kernel for the route. The addresses are for documents.
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		if conn, err := net.Dial("udp", to); err == nil {
			if from, ok := conn.LocalAddr().(*net.UDPAddr); ok && from.IP.IsGlobalUnicast() {
				add(from.IP.String())
			}
			_ = conn.Close()
		}
	}
	return hosts
}

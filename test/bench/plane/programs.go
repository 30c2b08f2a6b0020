package plane

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// loopback is the only address that anything listens on.
const loopback = "127.0.0.1"

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

func (p *Plane) etcd() Program {
	return Program{
		Name: Etcd, Path: p.component(Etcd), Ports: 2, Scheme: "http", Ready: Answers("/health"),
		Args: func(ports []int) []string {
			clients, peers := "http://"+address(ports[0]), "http://"+address(ports[1])
			return []string{
				// The state is thrown away with the machine's file cache: nothing waits for a disk.
				"--data-dir=" + p.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
				"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
				"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" + peers,
			}
		},
	}
}

func (p *Plane) apiserver(etcd string) Program {
	return Program{
		Name: APIServer, Path: p.component(APIServer), Ports: 1, Scheme: "https", Ready: answers("/readyz", p.token),
		Args: func(ports []int) []string {
			return append([]string{
				"--etcd-servers=" + etcd, "--bind-address=" + loopback, "--advertise-address=" + loopback,
				"--secure-port=" + strconv.Itoa(ports[0]), "--cert-dir=" + p.file("apiserver"),
				// An endpoint cannot have a loopback address, and nobody here looks for the Service.
				"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
				"--authorization-mode=" + cmp.Or(p.options.Authorization, "AlwaysAllow"), "--anonymous-auth=false", "--token-auth-file=" + p.file("tokens.csv"),
				// Pods need no service account, and nodes that nobody watches over are not tainted until somebody does.
				"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
				"--service-account-issuer=https://plane.test", "--service-account-key-file=" + p.file("accounts.key"),
				"--service-account-signing-key-file=" + p.file("accounts.key"), "--delete-collection-workers=8",
			}, p.options.APIServer...)
		},
	}
}

func (p *Plane) manager(controllers string, limits ...string) Program {
	return Program{
		Name: Manager, Path: p.component(Manager), Ports: 1, Scheme: "https", Ready: Answers("/healthz"),
		Args: func(ports []int) []string {
			return append(p.Serving(Manager, ports[0]), append(limits, "--kubeconfig="+p.kubeconfig, "--leader-elect=false", "--controllers="+controllers)...)
		},
	}
}

func (p *Plane) scheduler() Program {
	return Program{
		Name: Scheduler, Path: p.component(Scheduler), Ports: 1, Scheme: "https", Ready: Answers("/readyz"),
		Args: func(ports []int) []string {
			return append(p.Serving(Scheduler, ports[0]), "--config="+p.file("scheduler.yaml"))
		},
	}
}

// Serving are the arguments by which a program of Kubernetes' answers probes and gives profiles to whoever asks on the
// loopback interface.
func (p *Plane) Serving(name string, port int) []string {
	return []string{
		"--bind-address=" + loopback, "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + p.file(name),
		"--authentication-kubeconfig=" + p.kubeconfig, "--authorization-kubeconfig=" + p.kubeconfig,
		"--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics,/debug/pprof/*",
	}
}

// insecure asks programs that sign their own certificates, on the loopback interface.
var insecure = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} //nolint:gosec // see above

// Answers makes [Program.Ready] of a program that answers a path with success once it is ready.
func Answers(path string) func(context.Context, string) error { return answers(path, "") }

func answers(path, token string) func(context.Context, string) error {
	return func(ctx context.Context, url string) error {
		_, err := get(ctx, url+path, token)
		return err
	}
}

func get(ctx context.Context, url, token string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := insecure.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, answer.Status, strings.TrimSpace(string(text)))
	}
	return text, err
}

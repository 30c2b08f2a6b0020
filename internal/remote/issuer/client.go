package issuer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
)

// Files of the directory that an agent's pod has: its token and what it trusts.
const (
	FileToken     = "token"
	FileAuthority = keyAuthority
)

// Client asks the controller for certificates.
type Client struct {
	// Address is the controller's, a name and a port.
	Address string
	// Dir has the files of the agent's pod. They are read for each question, because they change.
	Dir string
}

// Host is what a host with GPUs for others shows and whom it accepts.
type Host struct {
	// Authority signed the certificates of its clients.
	Authority   *x509.Certificate
	Certificate *tls.Certificate
}

// NotAfter is when a host's certificate ends.
func (h *Host) NotAfter() time.Time { return h.Certificate.Leaf.NotAfter }

// Claim asks for a certificate by which this node uses the share of a claim. Its hosts are those of the claim's GPUs, by the names
// of their nodes: [identity.Bundle.Config] takes one of these, and whoever dials takes the address of the device.
func (c *Client) Claim(ctx context.Context, claim Claim) (*identity.Bundle, error) {
	answer, err := c.ask(ctx, pathClaim, claim)
	if err != nil {
		return nil, fmt.Errorf("get a certificate for claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	bundle, err := identity.ParseBundle([]byte(answer.Bundle))
	if err != nil {
		return nil, fmt.Errorf("read the certificate for claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return bundle, nil
}

// Host asks for the certificate with which this node serves its GPUs to others.
func (c *Client) Host(ctx context.Context) (*Host, error) {
	answer, err := c.ask(ctx, pathHost, struct{}{})
	if err != nil {
		return nil, fmt.Errorf("get this host's certificate: %w", err)
	}
	pair, err := tls.X509KeyPair([]byte(answer.Certificate), []byte(answer.Key))
	if err != nil {
		return nil, fmt.Errorf("read this host's certificate: %w", err)
	}
	block, _ := pem.Decode([]byte(answer.Authority))
	if block == nil {
		return nil, fmt.Errorf("read this host's certificate: no authority comes with it")
	}
	authority, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the authority of this host's certificate: %w", err)
	}
	return &Host{Authority: authority, Certificate: &pair}, nil
}

// askTime bounds one question.
const askTime = 15 * time.Second

func (c *Client) ask(ctx context.Context, path string, question any) (*issued, error) {
	token, err := os.ReadFile(filepath.Join(c.Dir, FileToken))
	if err != nil {
		return nil, fmt.Errorf("read the token of this agent's pod: %w", err)
	}
	trusted, err := os.ReadFile(filepath.Join(c.Dir, FileAuthority))
	if err != nil {
		return nil, fmt.Errorf("read what the controller's certificate is checked with, which the controller writes into ConfigMap %s: %w", ConfigMap, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted) {
		return nil, fmt.Errorf("%s has no certificate", filepath.Join(c.Dir, FileAuthority))
	}
	body, err := json.Marshal(question)
	if err != nil {
		return nil, fmt.Errorf("write a question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.Address+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the controller: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the controller: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		said := strings.TrimSpace(string(text))
		if response.StatusCode == http.StatusForbidden {
			return nil, fmt.Errorf("the controller says: %w", refusal(said))
		}
		return nil, fmt.Errorf("the controller answers %s: %s", response.Status, said)
	}
	var answer issued
	if err := decode(response.Body, &answer); err != nil {
		return nil, err
	}
	return &answer, nil
}

// refusal is what the controller said, as ErrRefused.
func refusal(said string) error {
	return fmt.Errorf("%w: %s", ErrRefused, strings.TrimPrefix(said, ErrRefused.Error()+": "))
}

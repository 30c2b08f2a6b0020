package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agent/relays"
	"github.com/divvy-gpu/divvy/internal/remote/issuer"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
)

// remoteClaims is the file that has the claims with shares on other hosts, in the agent's directory.
const remoteClaims = "remote-claims.json"

// reached keeps this node's relays to other hosts, nil where none are reached. An agent that reaches none any more goes on while
// claims have some.
func (k *node) reached() (*relays.Keeper, error) {
	if _, err := os.Stat(filepath.Join(k.Dir, remoteClaims)); k.options.Issuer.Address == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	divvy, err := k.Tree.Divvy()
	if err != nil {
		return nil, err
	}
	return relays.New(relays.Options{
		Dir: filepath.Join(k.Dir, relay.PlaceName), Node: k.options.Node, Tree: k.Tree, Divvy: divvy, Cover: k.Cover, Certify: k.certify, Apart: k.Apart, Log: k.Log,
	}), nil
}

// certify is what this node shows a host for a share, and where the host is.
func (k *node) certify(ctx context.Context, s dra.RemoteShare) (relays.Permit, error) {
	at, err := k.addressOfHost(ctx, s.Host)
	if err != nil {
		return relays.Permit{}, err
	}
	if k.options.Issuer.Address == "" {
		return relays.Permit{}, fmt.Errorf("this agent gets no certificates any more: give it --pool-issuer")
	}
	bundle, err := k.options.Issuer.Claim(ctx, issuer.Claim{Namespace: s.Namespace, Name: s.ClaimName, UID: s.Claim})
	return relays.Permit{Bundle: bundle, Address: at}, err
}

// addressOfHost is where a host is reached, as it publishes it.
func (k *node) addressOfHost(ctx context.Context, host string) (netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	slice, err := k.options.Client.ResourceV1().ResourceSlices().Get(ctx, v1alpha1.RemoteSlice(host), metav1.GetOptions{})
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find host %s: %w", host, err)
	}
	for i := range slice.Spec.Devices {
		if told := slice.Spec.Devices[i].Attributes[v1alpha1.AttributeAddress].StringValue; told != nil {
			at, err := netip.ParseAddrPort(*told)
			if err != nil {
				return at, fmt.Errorf("find host %s: %w", host, &net.AddrError{Err: err.Error(), Addr: *told})
			}
			return at, nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("find host %s: it publishes no GPU any more", host)
}

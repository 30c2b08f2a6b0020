// Package issuer gives certificates to the nodes of a cluster of which one uses the GPUs of another. The controller has the
// cluster's authority and asks the API server who asks and for what; a node's agent asks the controller.
//
// A request is an HTTPS POST with the token of the agent's service account for [Audience], which is bound to its pod and so
// names its node. A client's certificate is for one node and one claim and is valid for an hour at most: the claim must have a GPU
// of a pool, and be reserved for a pod of that node that has not ended. A host's certificate is for its own node's name. Each is
// asked for again before it ends; connections that are there outlive it.
package issuer

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Audience is that of the tokens with which agents ask. The API server takes no such token.
const Audience = "divvy-pool"

// Names of what the chart makes in the namespace of the release.
const (
	// Secret keeps the authority. Only the controller reads it.
	Secret = "divvy-pool-authority"
	// ConfigMap has the authority's certificate, by which agents know the controller.
	ConfigMap = "divvy-pool"
	// Service is where the controller answers agents.
	Service = "divvy-controller-pool"
)

// Keys of the Secret, of which the ConfigMap has the first.
const (
	keyAuthority = "ca.crt"
	keyPrivate   = "ca.key"
)

// Bounds of what is issued.
const (
	authorityFor = 10 * 365 * 24 * time.Hour
	// ClientFor is how long a client's certificate is valid, and hostFor that of a host.
	ClientFor = time.Hour
	hostFor   = 24 * time.Hour
)

// Paths of requests.
const (
	pathClaim = "/v1/claim"
	pathHost  = "/v1/host"
)

// mostBytes bounds requests and answers.
const mostBytes = 64 << 10

// Claim says for which claim a client's certificate is.
type Claim struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// issued is an answer: a bundle of package identity for a client, or the three texts of a host.
type issued struct {
	Bundle      string `json:"bundle,omitempty"`
	Authority   string `json:"authority,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
}

// ErrRefused is a request that is not granted, with the reason.
var ErrRefused = errors.New("refused")

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/divvy-gpu/divvy/internal/controller/web"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// webService is the controller's web page behind an API server's proxy: scheme, Service and port.
const webService = "https:divvy-controller:https"

const (
	// pageTime bounds asking the controller, which may have to read the cluster first.
	pageTime = 15 * time.Second
	// largestPage bounds an overview, in bytes: 1,000 nodes with 8 GPUs and 20 shares each take 40 MiB.
	largestPage = 256 << 20
)

var (
	// errNoToken says that the caller has nothing to show the controller.
	errNoToken = errors.New("the controller's web page takes a token, and your credentials have none: leave --web out to list by your own rights")
	// errActsFor says that a token shows somebody else than whom the caller acts for.
	errActsFor = errors.New("your kubeconfig acts for another user, whom its token does not show: leave --web out to list by that user's rights")
	// errNotNamespace is returned for what cannot be one.
	errNotNamespace = errors.New("--web wants a namespace")
	// errNoPage says that nobody answers.
	errNoPage = errors.New("no web page is served there: controller.web.enabled turns it on in the chart's values")
	// errMayNotAsk says what is missing.
	errMayNotAsk = errors.New("you may not reach the web page: an administrator binds the Role divvy-web of its namespace to you")
)

// askPage asks the controller of a namespace for what the caller's token shows, by way of the API server. The token goes
// where the caller says and nowhere else: an API server's proxy does not check who answers, and whoever may make a
// namespace and a Service could else have tokens sent to a program of theirs.
func askPage(ctx context.Context, client kubernetes.Interface, config *rest.Config, namespace string) (*overview.Overview, error) {
	if len(validation.ValidateNamespaceName(namespace, false)) > 0 {
		return nil, fmt.Errorf("%w, and not %.100q", errNotNamespace, namespace)
	}
	token, err := tokenOf(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	body, err := client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("services").Name(webService).SubResource("proxy").Suffix("cluster.json").
		SetHeader(web.TokenHeader, "Bearer "+token).SetHeader("Accept", "application/json").MaxRetries(0).Stream(ctx)
	if err != nil {
		return nil, unasked(err)
	}
	defer func() { _ = body.Close() }() // what was read is judged by what it says
	var found overview.Overview
	if err := json.NewDecoder(io.LimitReader(body, largestPage)).Decode(&found); err != nil {
		return nil, fmt.Errorf("read what the controller's web page tells: %w", err)
	}
	return &found, found.Check()
}

// unasked says what to do about a request that failed.
func unasked(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("%w (%w)", errMayNotAsk, err)
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("%w (%w)", errNoPage, err)
	}
	return fmt.Errorf("ask the controller's web page: %w", err)
}

// tokenOf is the token with which the API server would be asked, from a file, a program or the configuration. Who shows a
// certificate has none.
func tokenOf(config *rest.Config) (string, error) {
	if config.Impersonate.UserName != "" {
		return "", errActsFor
	}
	if config.ExecProvider == nil && config.AuthProvider == nil && config.BearerToken == "" && config.BearerTokenFile == "" {
		return "", errNoToken
	}
	var taken taking
	chain, err := rest.HTTPWrappersForConfig(rest.CopyConfig(config), &taken)
	if err != nil {
		return "", fmt.Errorf("find a token: %w", err)
	}
	request, err := http.NewRequest(http.MethodGet, "https://localhost", http.NoBody)
	if err != nil {
		return "", fmt.Errorf("find a token: %w", err)
	}
	answer, err := chain.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("find a token: %w", err)
	}
	_ = answer.Body.Close()
	if taken.token == "" {
		return "", errNoToken
	}
	return taken.token, nil
}

// taking keeps the token of a request, and sends nothing.
type taking struct{ token string }

// RoundTrip implements [http.RoundTripper].
func (t *taking) RoundTrip(r *http.Request) (*http.Response, error) {
	const scheme = "Bearer "
	if text := r.Header.Get("Authorization"); len(text) > len(scheme) {
		t.token = text[len(scheme):]
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

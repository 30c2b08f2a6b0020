package web

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// allowedFor is for how long an answer holds of what a token may see, and deniedFor one that the cluster does not know
	// it. Who loses a right sees for as long what it was for.
	allowedFor = time.Minute
	deniedFor  = 10 * time.Second
	// mostReaders bounds the tokens of which answers are kept.
	mostReaders = 1000
	// mostReviews bounds the tokens that are looked up at once, and mostQuestions what is asked for one at once.
	mostReviews   = 8
	mostQuestions = 8
	// reviewTime bounds how long one token takes.
	reviewTime = 10 * time.Second
	// longestToken bounds a token, in bytes: headers of that size pass API servers.
	longestToken = 16 << 10
)

// reader is who a token is.
type reader struct {
	// known is false for a token that the cluster does not take.
	known bool
	name  string
	rights
}

// readers finds out who tokens are and what they may see. It keeps answers under the digests of tokens, and no token.
type readers struct {
	client kubernetes.Interface
	now    func() time.Time
	slots  chan struct{} // holds one entry for each review

	mu    sync.Mutex
	known map[[sha256.Size]byte]*answer
}

// answer is what was found out about a token. Turn has one entry while somebody finds it out or looks at it.
type answer struct {
	turn  chan struct{}
	found *reader   // written while readers.mu is held too
	until time.Time // readers.mu guards it
}

func newReaders(client kubernetes.Interface, now func() time.Time) *readers {
	return &readers{client: client, now: now, slots: make(chan struct{}, mostReviews), known: map[[sha256.Size]byte]*answer{}}
}

// find returns the reader of a token. Namespaces are those in which there is something to see.
func (r *readers) find(ctx context.Context, token string, namespaces func(context.Context) ([]string, error)) (*reader, error) {
	if !plausible(token) {
		return &reader{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	a := r.answer(sha256.Sum256([]byte(token)))
	if err := take(ctx, a.turn); err != nil {
		return nil, err
	}
	defer func() { <-a.turn }()
	r.mu.Lock()
	until := a.until
	r.mu.Unlock()
	if a.found != nil && r.now().Before(until) {
		return a.found, nil
	}
	if err := take(ctx, r.slots); err != nil {
		return nil, err
	}
	defer func() { <-r.slots }()
	found, err := r.review(ctx, token, namespaces)
	if err != nil {
		return nil, err
	}
	lasts := deniedFor
	if found.known {
		lasts = allowedFor
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.found, a.until = found, r.now().Add(lasts)
	return found, nil
}

// kept is the reader of a token that was looked up lately, nil for any other.
func (r *readers) kept(token string) *reader {
	digest := sha256.Sum256([]byte(token))
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.known[digest]; a != nil && a.found != nil && a.found.known && r.now().Before(a.until) {
		return a.found
	}
	return nil
}

func take(ctx context.Context, turn chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait to look up a token: %w", ctx.Err())
	}
}

// plausible reports whether a text can be a token: such as stand in a header.
func plausible(token string) bool {
	return token != "" && len(token) <= longestToken && strings.IndexFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

// answer returns the one of a digest. The one that ends first goes for a new one: denied ones before those of readers.
func (r *readers) answer(digest [sha256.Size]byte) *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.known[digest]; a != nil {
		return a
	}
	if len(r.known) >= mostReaders {
		var first *[sha256.Size]byte
		for other := range r.known {
			if first == nil || r.known[other].until.Before(r.known[*first].until) {
				first = &other
			}
		}
		delete(r.known, *first) // whoever finds it out goes on with it alone
	}
	a := &answer{turn: make(chan struct{}, 1)}
	r.known[digest] = a
	return a
}

// review asks the API server. No error has the token.
func (r *readers) review(ctx context.Context, token string, namespaces func(context.Context) ([]string, error)) (*reader, error) {
	review, err := r.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("have a token reviewed: %w", withoutText(err))
	}
	if !review.Status.Authenticated || review.Status.User.Username == "" {
		return &reader{}, nil
	}
	found := &reader{known: true, name: review.Status.User.Username}
	may := func(resource, namespace string) (bool, error) {
		return r.mayList(ctx, &review.Status.User, resource, namespace)
	}
	if found.Nodes, err = may("nodes", metav1.NamespaceAll); err != nil {
		return nil, err
	}
	if found.All, err = may("pods", metav1.NamespaceAll); err != nil || found.All {
		return found, err
	}
	names, err := namespaces(ctx)
	if err != nil {
		return nil, err
	}
	names, found.More = first(names, homeOf(found.name))
	found.Namespaces, err = allowed(names, func(name string) (bool, error) { return may("pods", name) })
	return found, err
}

// errReview stands for an answer of the API server, whose text is not told.
var errReview = errors.New("the API server refuses")

// withoutText is an error of a request that had a token in it, without what an API server may say of that.
func withoutText(err error) error {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return fmt.Errorf("%w: %s", errReview, reason)
	}
	return err
}

// homeOf is the namespace of a service account, "" for other users.
func homeOf(user string) string {
	account, ok := strings.CutPrefix(user, "system:serviceaccount:")
	home, _, _ := strings.Cut(account, ":")
	if !ok {
		return ""
	}
	return home
}

// first are as many namespaces as are asked for, the reader's own among them. It reports whether there are more.
func first(names []string, home string) ([]string, bool) {
	if len(names) <= mostNamespaces {
		return names, false
	}
	kept := slices.Clone(names[:mostNamespaces])
	if _, there := slices.BinarySearch(names, home); there && !slices.Contains(kept, home) {
		kept[mostNamespaces-1] = home
	}
	return kept, true
}

// allowed are the names for which a question is answered by yes, in their order. Several are asked at once.
func allowed(names []string, ask func(name string) (bool, error)) ([]string, error) {
	yes, faults := make([]bool, len(names)), make([]error, len(names))
	turns := make(chan struct{}, mostQuestions)
	var under sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		under.Go(func() {
			defer func() { <-turns }()
			yes[i], faults[i] = ask(name)
		})
	}
	under.Wait()
	var kept []string
	for i, name := range names {
		if yes[i] {
			kept = append(kept, name)
		}
	}
	return kept, errors.Join(faults...)
}

func (r *readers) mayList(ctx context.Context, user *authenticationv1.UserInfo, resource, namespace string) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: resource, Namespace: namespace},
	}
	for name, values := range user.Extra {
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	review, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether a reader may list %s: %w", resource, err)
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

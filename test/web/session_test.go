package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	controller "github.com/divvy-gpu/divvy/internal/controller/web"
	"github.com/divvy-gpu/divvy/test/web/browser"
)

const (
	// prefix is where an API server's proxy has the page.
	prefix = "/api/v1/namespaces/divvy-system/services/https:divvy-controller:https/proxy/"
	// good is a token that the cluster takes.
	good = "a-good-token"
)

// TestSignIn goes through the form as a person does: by what is like kubectl proxy and the API server's proxy behind it, under
// both names of that, and over TLS as by kubectl port-forward.
func TestSignIn(t *testing.T) {
	open(t) // before anything is built for it
	page := controllerPage(t)
	port := kubectlProxy(t, page)
	for name, address := range map[string]string{
		"localhost": "http://localhost:" + port + prefix, "127.0.0.1": "http://127.0.0.1:" + port + prefix, "forwarded": "https://" + page + "/",
	} {
		t.Run(name, func(t *testing.T) { signIn(t, address) })
	}
}

func signIn(t *testing.T, address string) {
	tab := open(t)
	arrive(t, tab, address)
	accessible(t, tab, "sign-in")
	// A wrong token, and back.
	submit(t, tab, "a-wrong-token")
	leads(t, tab, `document.body.innerText.includes("the cluster does not take this token")`)
	run(t, tab, chromedp.NavigateBack(), chromedp.WaitVisible("#token"))
	if kept := cookies(t, tab, address); len(kept) != 0 {
		t.Fatalf("a wrong token leaves %v", kept)
	}
	submit(t, tab, good)
	leads(t, tab, fmt.Sprintf(`location.href === %q && document.body.innerText.includes("You look as ada") && document.body.innerText.includes("n1")`, address))
	accessible(t, tab, "signed-in")
	kept := cookies(t, tab, address)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != 1 || !kept[0].HTTPOnly || !kept[0].Secure || kept[0].SameSite != network.CookieSameSiteStrict || kept[0].Path != strings.TrimSuffix(at.Path, "/") && kept[0].Path != at.Path {
		t.Errorf("the browser keeps %+v", kept)
	}
	leads(t, tab, `document.cookie === ""`)
	// Below the page, and away from there.
	run(t, tab, chromedp.Click(`a[href="node/n1"]`, chromedp.NodeVisible))
	leads(t, tab, fmt.Sprintf(`location.href === %q && document.body.innerText.includes("40Gi")`, address+"node/n1"))
	run(t, tab, chromedp.Click(`footer button`, chromedp.NodeVisible))
	leads(t, tab, fmt.Sprintf(`location.href === %q && document.getElementById("token") !== null && !document.body.innerText.includes("n1")`, address))
	if kept := cookies(t, tab, address); len(kept) != 0 {
		t.Errorf("after it was forgotten there is %v", kept)
	}
}

// arrive opens the page, beyond the warning of a certificate that nobody vouches for.
func arrive(t *testing.T, tab context.Context, address string) {
	t.Helper()
	err := chromedp.Run(tab, chromedp.Navigate(address))
	if strings.HasPrefix(address, "https:") {
		if err == nil || !strings.Contains(err.Error(), "ERR_CERT_AUTHORITY_INVALID") {
			t.Fatalf("the browser does not warn of the certificate: %v", err)
		}
		// Who goes on in spite of it does so for this certificate.
		run(t, tab, security.SetIgnoreCertificateErrors(true), chromedp.Navigate(address))
	} else if err != nil {
		t.Fatal(err)
	}
	run(t, tab, chromedp.WaitVisible("#token"))
}

// leads waits until a page is shown in which an expression is true. Others come and go meanwhile.
func leads(t *testing.T, tab context.Context, expression string) {
	t.Helper()
	there, page := false, ""
	if err := wait.PollUntilContextCancel(tab, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		fault := chromedp.Run(ctx, chromedp.Evaluate(expression, &there), chromedp.Evaluate(`location.href + " " + document.body.innerText.slice(0, 600)`, &page))
		return fault == nil && there, nil
	}); err != nil {
		t.Fatalf("no page comes in which %s: %v: %s", expression, err, page)
	}
}

func submit(t *testing.T, tab context.Context, token string) {
	t.Helper()
	run(t, tab, chromedp.Evaluate(`document.getElementById("token").value = ""`, nil), chromedp.SendKeys("#token", token+kb.Enter))
}

func cookies(t *testing.T, tab context.Context, address string) []*network.Cookie {
	t.Helper()
	var kept []*network.Cookie
	run(t, tab, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		kept, err = network.GetCookies().WithURLs([]string{address}).Do(ctx)
		return err
	}))
	return kept
}

// accessible has axe-core look at what is shown, light and dark.
func accessible(t *testing.T, tab context.Context, name string) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		run(t, tab, browser.Scheme(scheme))
		found, err := started.browser.Violations(tab)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range found {
			t.Errorf("%s, %s: %s: %s: %v", name, scheme, v.ID, v.Help, v.Nodes)
		}
		if err := browser.Picture(tab, filepath.Join(root, "build/web", name+"-"+scheme+".png")); err != nil {
			t.Fatal(err)
		}
	}
}

// controllerPage serves the controller's page of a cluster with one node, and returns its address.
func controllerPage(t *testing.T) string {
	t.Helper()
	client := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: v1alpha1.Driver, NodeName: new("n1"), Pool: resourcev1.ResourcePool{Name: "n1", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "gpu-0-shared", Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacityMemory: {Value: resource.MustParse("40Gi")}}}},
		}},
	)
	client.PrependReactor("create", "*", review)
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	t.Cleanup(certified.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- controller.New(controller.Options{
			Client: client, Reviews: client, Version: "0.1.0", Now: time.Now, Log: log,
			Certificate: func() (*tls.Certificate, error) { return &certified.TLS.Certificates[0], nil },
		}).Serve(ctx, listener, log)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// review answers as an API server that knows one token.
func review(action clienttesting.Action) (bool, kruntime.Object, error) {
	create, _ := action.(clienttesting.CreateAction)
	switch object := create.GetObject().(type) {
	case *authenticationv1.TokenReview:
		answer := object.DeepCopy()
		answer.Status = authenticationv1.TokenReviewStatus{Authenticated: object.Spec.Token == good, User: authenticationv1.UserInfo{Username: "ada"}}
		return true, answer, nil
	case *authorizationv1.SubjectAccessReview:
		answer := object.DeepCopy()
		answer.Status.Allowed = true
		return true, answer, nil
	}
	return false, nil, nil
}

// kubectlProxy serves as kubectl proxy does, with what an API server's proxy does behind it, and returns its port.
func kubectlProxy(t *testing.T, page string) string {
	t.Helper()
	trusting := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // as API servers do for services
	t.Cleanup(trusting.CloseIdleConnections)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, below := strings.CutPrefix(r.URL.Path, strings.TrimSuffix(prefix, "/"))
		if !below {
			http.NotFound(w, r)
			return
		}
		r.Header.Del("Authorization")
		proxy.NewUpgradeAwareHandler(&url.URL{Scheme: "https", Host: page, Path: path}, trusting, true, false, failing{t}).ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)
	to, err := url.Parse(api.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	handler := proxy.NewUpgradeAwareHandler(to, api.Client().Transport, false, false, failing{t})
	handler.UseRequestLocation, handler.UseLocationHost = true, true
	kubectl := httptest.NewServer(handler)
	t.Cleanup(kubectl.Close)
	_, port, err := net.SplitHostPort(kubectl.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// failing notes what a proxy cannot do.
type failing struct{ t *testing.T }

func (f failing) Error(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		f.t.Log(err)
	}
	http.Error(w, "the proxy fails", http.StatusBadGateway)
}

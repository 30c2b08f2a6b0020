package extender

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/extender/ledger"
	"github.com/divvy-gpu/divvy/internal/lease"
)

// running is a server that runs.
type running struct {
	t         *testing.T
	w         *world
	client    *fake.Clientset
	questions string
	plain     string
	ended     chan error
	stop      context.CancelFunc
}

// leaseOf is a lease that somebody has renewed just now.
func leaseOf(name, holder string) *coordinationv1.Lease {
	seconds, turns, now := int32(3600), int32(1), metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "divvy-system", Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now, AcquireTime: &now, LeaseTransitions: &turns},
	}
}

// serve starts a server of a cluster with a node and a pod, whose lease somebody else has.
func serve(t *testing.T) *running {
	t.Helper()
	w := newWorld(t)
	pod := podOf(t, "p", 10)
	w.pods[pod.Name] = pod
	r := &running{t: t, w: w, client: fake.NewClientset(nodeOf(t, "a", 1), pod, leaseOf("extender", "other")), ended: make(chan error, 1)}
	r.client.PrependReactor("update", "leases", r.conflict)
	config := &rest.Config{Host: w.server.URL, QPS: 1e6, Burst: 1e6}
	write, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Follow: r.client, Write: write, Ledger: ledger.Config{Policy: policy, Grace: time.Minute}, Log: slog.New(slog.DiscardHandler),
		Election: Election{Leases: r.client.CoordinationV1(), Namespace: "divvy-system", Name: "extender", Identity: "me", Duration: time.Minute, Deadline: 50 * time.Second, Retry: 10 * time.Millisecond},
		List: func(context.Context) (*metav1.PartialObjectMetadataList, error) {
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []metav1.PartialObjectMetadata{{ObjectMeta: pod.ObjectMeta}}}, nil
		},
	}
	o.Lock = o.Election.Lock()
	if err := o.Lock.Guard(write, config); err != nil {
		t.Fatal(err)
	}
	if o.TLS, err = InMemory(); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*net.Listener{&o.Questions, &o.Plain} {
		if *l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	r.questions, r.plain = "https://"+o.Questions.Addr().String(), "http://"+o.Plain.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.ended <- Serve(ctx, o) }()
	t.Cleanup(stop)
	return r
}

// conflict refuses to renew a lease that somebody else has taken, as an API server does by the revision.
func (r *running) conflict(action clienttesting.Action) (bool, runtime.Object, error) {
	asked, ok := action.(clienttesting.UpdateAction)
	if !ok {
		return false, nil, nil
	}
	update, ok := asked.GetObject().(*coordinationv1.Lease)
	found, err := r.client.Tracker().Get(action.GetResource(), action.GetNamespace(), "extender")
	if has, is := found.(*coordinationv1.Lease); ok && is && err == nil && *has.Spec.HolderIdentity == "other" && *update.Spec.HolderIdentity == "me" {
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), "extender", errors.New("another has it"))
	}
	return false, nil, nil
}

// hold gives the lease to somebody.
func (r *running) hold(name, who string) {
	r.t.Helper()
	if _, err := r.client.CoordinationV1().Leases("divvy-system").Update(r.t.Context(), leaseOf(name, who), metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// get returns status and text of a probe.
func (r *running) get(path string) (int, string) {
	answer, err := http.Get(r.plain + path) //nolint:noctx // the server is this process's
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// until waits for a status of a probe.
func (r *running) until(path string, want int) {
	r.t.Helper()
	for last := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		status, text := r.get(path)
		if status == want {
			return
		}
		if time.Now().After(last) {
			r.t.Fatalf("%s says %d: %s", path, status, text)
		}
	}
}

// post asks what a scheduler asks.
func (r *running) post(verb, text string) (int, string) {
	r.t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as a scheduler of the same pod
	defer client.CloseIdleConnections()
	answer, err := client.Post(r.questions+"/"+verb, "application/json", strings.NewReader(text)) //nolint:noctx // the server is this process's
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// A replica answers from when it has the lease, and ends when another one takes it.
func TestServe(t *testing.T) {
	r := serve(t)
	question := fmt.Sprintf(`{"Pod":{"metadata":{"name":"p","namespace":"default","uid":"uid-p","annotations":{"divvy.dev/request":%q}}},"Nodes":null,"NodeNames":["a","b"]}`, requestText(t, 10))
	bind := `{"PodName":"p","PodNamespace":"default","PodUID":"uid-p","Node":"a"}`
	r.until("/standingz", http.StatusOK)
	if status, text := r.get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(text, "does not hold lease divvy-system/extender") {
		t.Errorf("who follows is ready: %d %s", status, text)
	}
	for _, verb := range []string{VerbFilter, VerbBind} {
		if status, text := r.post(verb, map[string]string{VerbFilter: question, VerbBind: bind}[verb]); status != http.StatusOK || !strings.Contains(text, `"Error":"no pod with a share is placed now: this replica of divvy scheduler-extender does not hold`) {
			t.Errorf("who follows answers %s: %d %s", verb, status, text)
		}
	}
	if status, _ := r.post(VerbPrioritize, question); status != http.StatusServiceUnavailable {
		t.Errorf("who follows scores: %d", status)
	}
	victims := strings.Replace(question, `"Nodes":null,"NodeNames":["a","b"]`, `"NodeNameToVictims":null,"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"v"}],"NumPDBViolations":2},"b":{"Pods":[{"UID":"w"}],"NumPDBViolations":0}}`, 1)
	if status, text := r.post(VerbPreempt, victims); status != http.StatusServiceUnavailable || !strings.Contains(text, "does not hold") {
		t.Errorf("who follows has others ended: %d %s", status, text)
	}
	r.hold("extender", "")
	r.until("/readyz", http.StatusOK)
	if status, text := r.post(VerbFilter, question); status != http.StatusOK || !strings.Contains(text, `{"NodeNames":["a"],"FailedAndUnresolvableNodes":{"b":`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.post(VerbPrioritize, question); status != http.StatusOK || !strings.HasPrefix(text, `[{"Host":"a","Score":10}`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.post(VerbPreempt, victims); status != http.StatusOK || text != `{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"v"}],"NumPDBViolations":2}}}` {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.post(VerbFilter, strings.Repeat(" ", longestMessage)+question); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a long question: %d %s", status, text)
	}
	if status, text := r.post(VerbFilter, "{"); status != http.StatusBadRequest {
		t.Errorf("half a question: %d %s", status, text)
	}
	if status, text := r.post(VerbBind, bind); status != http.StatusOK || text != `{"Error":""}` || r.w.pod("p").Spec.NodeName != "a" {
		t.Errorf("%d %s", status, text)
	}
	if _, text := r.get("/metrics"); !strings.Contains(text, `divvy_extender_binds_total{result="bound"} 1`) || !strings.Contains(text, "divvy_extender_leads 1") ||
		!strings.Contains(text, `divvy_extender_requests_total{result="answered",verb="preempt"} 1`) || !strings.Contains(text, `divvy_extender_requests_total{result="away",verb="preempt"} 1`) {
		t.Error(text)
	}
	r.hold("extender", "other")
	if err := <-r.ended; !errors.Is(err, ErrLeaseLost) {
		t.Error(err)
	}
}

// Who has not renewed the lease in time answers nothing, even before it notices.
func TestAwayWithoutTheLease(t *testing.T) {
	w := newWorld(t)
	e := Election{Leases: fake.NewClientset().CoordinationV1(), Namespace: "divvy-system", Name: "extender", Identity: "me", Duration: 2 * time.Hour, Deadline: time.Hour}
	s := &server{options: Options{Lock: e.Lock(), Election: e}, core: w.core, known: follow(fake.NewClientset(), w.core)}
	for i := range s.known.synced {
		s.known.synced[i] = func() bool { return true }
	}
	s.leads.Store(true)
	if err := s.away(); !errors.Is(err, lease.ErrLease) {
		t.Errorf("without a lease: %v", err)
	}
	if err := s.options.Lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
	if err := s.away(); err != nil {
		t.Error(err)
	}
}

// A replica that is told to end answers what has begun, and then gives the lease up.
func TestEndInMidBind(t *testing.T) {
	r := serve(t)
	r.hold("extender", "")
	r.until("/readyz", http.StatusOK)
	written, answered := make(chan struct{}), make(chan struct{})
	r.w.manners(func(out http.ResponseWriter, do func()) {
		close(written)
		<-answered
		do()
		_, _ = out.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	})
	bound := make(chan string, 1)
	go func() {
		_, text := r.post(VerbBind, `{"PodName":"p","PodNamespace":"default","PodUID":"uid-p","Node":"a"}`)
		bound <- text
	}()
	<-written
	r.stop()
	r.until("/readyz", http.StatusServiceUnavailable)
	if found, err := r.client.CoordinationV1().Leases("divvy-system").Get(t.Context(), "extender", metav1.GetOptions{}); err != nil || *found.Spec.HolderIdentity != "me" {
		t.Errorf("the lease is given up while a Binding is on its way: %+v, %v", found, err)
	}
	close(answered)
	if text := <-bound; text != `{"Error":""}` {
		t.Error(text)
	}
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	if found, err := r.client.CoordinationV1().Leases("divvy-system").Get(t.Context(), "extender", metav1.GetOptions{}); err != nil || *found.Spec.HolderIdentity != "" {
		t.Errorf("the lease is kept: %+v, %v", found, err)
	}
}

// A replica beside a scheduler leads while that scheduler does.
func TestFollowsTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		leases := client.CoordinationV1().Leases("divvy-system")
		e := Election{Leases: client.CoordinationV1(), Namespace: "divvy-system", Name: "extender", Identity: "me", Scheduler: "scheduler", Host: "here", Duration: 12 * time.Second, Deadline: 10 * time.Second, Retry: 2 * time.Second}
		working, ended := false, false
		go func() {
			worked, err := e.lead(t.Context(), e.Lock(), func(string, ...any) {}, func(ctx context.Context) error {
				working = true
				<-ctx.Done()
				working = false
				return nil
			})
			if worked != nil || err != nil {
				t.Error(worked, err)
			}
			ended = true
		}()
		see := func(when string, want bool) {
			t.Helper()
			time.Sleep(2 * e.Retry)
			synctest.Wait()
			if working != want {
				t.Errorf("%s: leads is %v", when, working)
			}
		}
		see("without a scheduler", false)
		if _, err := leases.Create(t.Context(), leaseOf("scheduler", "here-too_1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		see("while a scheduler elsewhere leads", false)
		if _, err := leases.Update(t.Context(), leaseOf("scheduler", "here_1"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		see("while its scheduler leads", true)
		see("for longer", true)
		if _, err := leases.Update(t.Context(), leaseOf("scheduler", "there_1"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		see("after that", false)
		found, err := leases.Get(t.Context(), "extender", metav1.GetOptions{})
		if !ended || err != nil || *found.Spec.HolderIdentity != "" {
			t.Errorf("the lease is kept: %+v, %v", found, err)
		}
	})
}

// Only who has a certificate of the authority, with one of the names, may ask.
func TestCallers(t *testing.T) {
	authority, key := certificateOf(t, "authority", nil, nil)
	other, otherKey := certificateOf(t, "other", nil, nil)
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	config, err := InMemory()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", Only(config, pool, []string{"system:kube-scheduler"}))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { _ = server.Close() })
	for name, test := range map[string]struct {
		certificate *tls.Certificate
		may         bool
	}{
		"nobody":             {},
		"the scheduler":      {pairOf(t, "system:kube-scheduler", authority, key), true},
		"somebody else":      {pairOf(t, "system:node:a", authority, key), false},
		"of somebody else's": {pairOf(t, "system:kube-scheduler", other, otherKey), false},
	} {
		client := tls.Config{InsecureSkipVerify: true} //nolint:gosec // whom the server trusts is tested
		if test.certificate != nil {
			client.Certificates = []tls.Certificate{*test.certificate}
		}
		answer, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &client, DisableKeepAlives: true}}).Get("https://" + listener.Addr().String()) //nolint:noctx // the server is this process's
		if err == nil {
			_ = answer.Body.Close()
		}
		if (err == nil) != test.may {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Authorities([]byte("none")); err == nil {
		t.Error("nothing is an authority")
	}
}

func certificateOf(t *testing.T, name string, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if by == nil {
		by, byKey = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), byKey)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return made, key
}

func pairOf(t *testing.T, name string, by *x509.Certificate, byKey *ecdsa.PrivateKey) *tls.Certificate {
	t.Helper()
	made, key := certificateOf(t, name, by, byKey)
	return &tls.Certificate{Certificate: [][]byte{bytes.Clone(made.Raw)}, PrivateKey: key}
}

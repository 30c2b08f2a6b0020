package chart_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/plane"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusesOtherTokens shows the page tokens of service account viewer, who may see all: one for another audience than the API
// server, one that has ended, and one whose service account is gone.
func refusesOtherTokens(t *testing.T, p *plane.Plane, port string) {
	t.Helper()
	accounts := p.Client().CoreV1().ServiceAccounts("red")
	other, err := accounts.CreateToken(t.Context(), "viewer", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gone := account(t, p.Client(), "red", "gone")
	if err := accounts.Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Nobody is given a token for less than ten minutes: these are signed with the API server's key.
	valid := tokenOf(t, p.Client(), "red", "viewer")
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"another audience":         {other.Status.Token, http.StatusUnauthorized},
		"no service account":       {gone, http.StatusUnauthorized},
		"ended":                    {lasting(t, p, valid, time.Now().Add(-time.Minute)), http.StatusUnauthorized},
		"the same, not ended":      {lasting(t, p, valid, time.Now().Add(30*time.Minute)), http.StatusOK},
		"another key than the API": {valid[:strings.LastIndex(valid, ".")+1] + strings.Repeat("A", 86), http.StatusUnauthorized},
	} {
		// An API server may hold for some seconds what it knows of a deleted account.
		eventually(t, func() bool {
			code, text := askDirectly(t, port, c.token)
			if code != c.want {
				t.Logf("%s: %d %.200s", name, code, text)
			}
			if code != http.StatusOK && strings.Contains(text, c.token) {
				t.Errorf("%s: the answer has the token", name)
			}
			return code == c.want
		})
	}
}

// lasting is a token with another end, signed as the API server does.
func lasting(t *testing.T, p *plane.Plane, token string, end time.Time) string {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(p.Dir(), "accounts.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(file)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	began := end.Add(-time.Hour).Unix()
	claims["exp"], claims["iat"], claims["nbf"] = end.Unix(), began, began
	if text, err = json.Marshal(claims); err != nil {
		t.Fatal(err)
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(text)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	const half = 32 // of a signature ES256
	signature := append(r.FillBytes(make([]byte, half)), s.FillBytes(make([]byte, half))...)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

package web

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

const (
	// linkLife is how long a link can be opened, and ownLife how long the page lasts to which it leads: less if nobody has
	// it open for idleLife.
	linkLife = 5 * time.Minute
	ownLife  = 12 * time.Hour
	idleLife = 2 * time.Hour
	// mostOfUser bounds the links and the pages of one user; one more takes the place of the oldest.
	mostOfUser = 16
	// secretBytes are as many as nobody guesses.
	secretBytes = 32
)

// digest stands for a secret: what is looked up by it takes as long for a guess that is nearly right as for any other.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

func newSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // which never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// right is what a secret gives.
type right struct {
	uid         int
	made, until time.Time
	used        time.Time
}

func (r *right) ended(now time.Time) bool { return !now.Before(r.until) || now.Sub(r.used) > idleLife }

// secrets are those of links and of pages. They end with the agent.
type secrets struct {
	now func() time.Time

	mu    sync.Mutex
	links map[digest]*right
	pages map[digest]*right
}

func newSecrets(now func() time.Time) *secrets {
	return &secrets{now: now, links: map[digest]*right{}, pages: map[digest]*right{}}
}

// invite makes the secret of a link for a user.
func (s *secrets) invite(uid int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(s.links, uid, linkLife)
}

// open uses up the secret of a link and returns that of a page.
func (s *secrets) open(secret string) (own string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	link := s.links[digestOf(secret)]
	if link == nil {
		return "", false
	}
	delete(s.links, digestOf(secret))
	return s.add(s.pages, link.uid, ownLife), true
}

// reader is the user whose page has a secret.
func (s *secrets) reader(secret string) (uid int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page, now := s.pages[digestOf(secret)], s.now()
	if page == nil || page.ended(now) {
		return 0, false
	}
	page.used = now
	return page.uid, true
}

// add makes a secret. s.mu is held.
func (s *secrets) add(to map[digest]*right, uid int, life time.Duration) string {
	s.forget()
	count := 0
	var oldest digest
	for key, r := range to {
		if r.uid != uid {
			continue
		}
		if count++; count == 1 || r.made.Before(to[oldest].made) {
			oldest = key
		}
	}
	if count >= mostOfUser {
		delete(to, oldest)
	}
	secret, now := newSecret(), s.now()
	to[digestOf(secret)] = &right{uid: uid, made: now, used: now, until: now.Add(life)}
	return secret
}

// forget drops what has ended. s.mu is held.
func (s *secrets) forget() {
	now := s.now()
	for _, of := range []map[digest]*right{s.links, s.pages} {
		for key, r := range of {
			if r.ended(now) {
				delete(of, key)
			}
		}
	}
}

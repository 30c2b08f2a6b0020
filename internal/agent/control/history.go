package control

import (
	"context"

	"github.com/divvy-gpu/divvy/internal/history/store"
)

// HistoryParams ask for a page of what shares did.
type HistoryParams struct {
	From store.Cursor `json:"from"`
}

// History is a page. Of other users' commands it has the program alone, as listings do.
type History struct {
	store.Page
	// Off is true for an agent that keeps none.
	Off bool `json:"off,omitempty"`
}

// History returns a page of what shares did, as the agent keeps it.
func (c *Client) History(ctx context.Context, p HistoryParams) (*History, error) {
	var h History
	if err := c.call(ctx, MethodHistory, p, &h); err != nil {
		return nil, err
	}
	return &h, nil
}

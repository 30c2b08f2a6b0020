package control

import "context"

// Web is a way to the agent's web page.
type Web struct {
	// Link can be opened once, within minutes. It leads to a page that shows its reader what the asker may see, so it is
	// a secret.
	Link string `json:"link"`
}

// Web makes a link to the agent's web page, for the user who asks. The error has [CodeRefused] where there is no page.
func (c *Client) Web(ctx context.Context) (Web, error) {
	var made Web
	err := c.call(ctx, MethodWeb, nil, &made)
	return made, err
}

package command

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"tideline/server"
)

// Healthcheck checks a running process. It is for containers without a shell and curl.
type Healthcheck struct {
	URL     string        `arg:"" optional:"" help:"Where the process answers, such as http://127.0.0.1:8080. Default: --admin-addr, or else --addr."`
	Ready   bool          `env:"-" help:"Ask /readyz, whether it can serve, instead of /livez."`
	Timeout time.Duration `env:"-" default:"5s" help:"Wait for the answer this long at most."`
}

// Run prints the answer. It fails unless the process reports that it is healthy.
func (h Healthcheck) Run(ctx context.Context, c server.Config, console server.Console) error {
	if err := c.Validate(); err != nil {
		return err
	}
	url, path := h.URL, "/livez"
	if url == "" {
		url = c.HealthURL()
	}
	if h.Ready {
		path = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+path, http.NoBody)
	if err != nil {
		return err
	}
	// It calls its own machine by an address that is in no certificate.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return err
	}
	fmt.Fprintln(console.Out, strings.TrimSpace(string(answer)))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	return nil
}

package command

import (
	"cmp"
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
	URL     string        `arg:"" optional:"" help:"Base URL of the process, such as http://127.0.0.1:8080. Defaults to the address of --admin-addr, or of --addr if the former is not set."`
	Ready   bool          `env:"-" help:"Request /readyz instead of /livez: check that the process can serve requests."`
	Timeout time.Duration `env:"-" default:"5s" help:"Wait at most this long for the answer."`
}

// Run prints the answer of the process. It fails unless the process reports that it is healthy.
func (h Healthcheck) Run(ctx context.Context, c server.Config, console server.Console) error {
	if err := c.Validate(); err != nil {
		return err
	}
	url, path := cmp.Or(h.URL, c.HealthURL()), "/livez"
	if h.Ready {
		path = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+path, http.NoBody)
	if err != nil {
		return err
	}
	// The request goes to this machine, by an address that no certificate contains.
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
		return fmt.Errorf("%s answered %s", request.URL, response.Status)
	}
	return nil
}

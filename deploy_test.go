package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), file)
}

// isCommand reports whether the program has a command of this name.
func isCommand(name string) bool {
	_, found := reflect.TypeFor[commands]().FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
	return found
}

// TestChartMigratesFirst checks that an upgrade of the chart expands the tables before it replaces
// pods.
func TestChartMigratesFirst(t *testing.T) {
	text, err := os.ReadFile("deploy/helm/tideline/templates/migrate.yaml")
	require.NoError(t, err)
	for _, want := range []string{`dict "expand" "pre-install,pre-upgrade"`, `"contract" "post-upgrade"`, "helm.sh/hook: {{ $hook }}", "args: [migrate, --phase={{ $phase }}]", "tideline.confined"} {
		require.Contains(t, string(text), want)
	}
	require.True(t, isCommand("migrate"))
}

// TestBuildsAreToldTheirVersion checks that every build for distribution sets the version and commit
// variables, and that the variables exist.
func TestBuildsAreToldTheirVersion(t *testing.T) {
	source, err := os.ReadFile("server/version.go")
	require.NoError(t, err)
	require.Contains(t, string(source), "\nvar version, commit string\n")
	for _, file := range []string{"Makefile", "Dockerfile", ".goreleaser.yaml"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, variable := range []string{"version", "commit"} {
			assert.Contains(t, string(text), "-X tideline/server."+variable+"=", file)
		}
	}
}

func TestReleasesAreForSixSystems(t *testing.T) {
	var release struct {
		Version int
		Builds  []struct{ Env, Goos, Goarch []string }
		Sboms   []struct{ Artifacts string }
	}
	readYAML(t, ".goreleaser.yaml", &release)
	require.Equal(t, 2, release.Version)
	require.Len(t, release.Builds, 1)
	require.Equal(t, []string{"CGO_ENABLED=0"}, release.Builds[0].Env)
	require.Equal(t, []string{"linux", "darwin", "windows"}, release.Builds[0].Goos)
	require.Equal(t, []string{"amd64", "arm64"}, release.Builds[0].Goarch)
	require.Len(t, release.Sboms, 1)
}

// TestImageHasTheProgramAlone checks that the image contains no shell, and runs the program as a user
// that is not root.
func TestImageHasTheProgramAlone(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	_, last, found := strings.Cut(string(text), "\nFROM scratch\n")
	require.True(t, found)
	for _, line := range []string{"USER 65532:65532", `ENTRYPOINT ["/tideline"]`} {
		require.Contains(t, last, "\n"+line+"\n")
	}
	require.NotContains(t, last, "\nRUN ", "there is no shell")
	health := regexp.MustCompile(`HEALTHCHECK .* CMD \["/tideline", "(\w+)"\]`).FindStringSubmatch(last)
	require.NotNil(t, health)
	require.True(t, isCommand(health[1]), health[1])
}

func TestComposeHasThreeWaysToRun(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Profiles    []string
			Image       string
			Build       any
			ReadOnly    bool     `yaml:"read_only"`
			CapDrop     []string `yaml:"cap_drop"`
			SecurityOpt []string `yaml:"security_opt"`
			Command     []string
			Environment map[string]string
			Secrets     []string
			DependsOn   map[string]any `yaml:"depends_on"`
			Healthcheck struct{ Test []string }
			Volumes     []string
		}
		Secrets, Volumes map[string]any
	}
	readYAML(t, "deploy/compose.yaml", &file)
	profiles := map[string][]string{}
	for name, s := range file.Services {
		require.NotEmpty(t, s.Profiles, name)
		for _, profile := range s.Profiles {
			profiles[profile] = append(profiles[profile], name)
		}
		for other := range s.DependsOn {
			require.Contains(t, file.Services, other, name)
			for _, profile := range s.Profiles {
				require.Contains(t, file.Services[other].Profiles, profile, "%s waits for %s, which is not there", name, other)
			}
		}
		for _, secret := range s.Secrets {
			require.Contains(t, file.Secrets, secret)
		}
		for _, volume := range s.Volumes {
			if from, _, _ := strings.Cut(volume, ":"); strings.HasPrefix(from, "./") {
				require.FileExists(t, filepath.Join("deploy", from))
			} else {
				require.Contains(t, file.Volumes, from)
			}
		}
		if s.Build == nil {
			continue
		}
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		require.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		require.Equal(t, "true", s.Environment["TIDELINE_PRODUCTION"], name)
		require.Equal(t, []string{"CMD", "/tideline", "healthcheck", "--ready"}, s.Healthcheck.Test, name)
		require.NotContains(t, s.Environment, "TIDELINE_DATABASE_URL", "a secret is in a file")
		for _, command := range s.Command {
			require.True(t, isCommand(command), command)
		}
	}
	require.Len(t, profiles, 3)
	require.Equal(t, []string{"embedded"}, profiles["embedded"])
	require.Subset(t, profiles["one"], []string{"tideline", "postgres", "redis"})
	require.Contains(t, file.Services["server"].DependsOn, "worker", "an upgrade has workers first")
	require.Contains(t, file.Services["worker"].DependsOn, "migrate", "and the tables before them")
	require.Subset(t, profiles["many"], []string{"server", "worker", "postgres", "redis-1", "redis-2", "redis-3", "caddy"})
}

// TestUnitsAreHardened checks that the units run commands that exist, as a user with few rights.
func TestUnitsAreHardened(t *testing.T) {
	units, err := filepath.Glob("deploy/systemd/*.service")
	require.NoError(t, err)
	require.Len(t, units, 3)
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		require.NoError(t, err)
		command := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/tideline (\w+)$`).FindStringSubmatch(string(text))
		require.NotNil(t, command, unit)
		require.True(t, isCommand(command[1]), unit)
		for _, line := range []string{
			"DynamicUser=yes", "CapabilityBoundingSet=", "NoNewPrivileges=yes", "ProtectSystem=strict", "SystemCallFilter=@system-service", "LimitNOFILE=25000",
		} {
			require.Contains(t, string(text), "\n"+line+"\n", unit)
		}
	}
}

func TestChartProbesWhatAProcessAnswers(t *testing.T) {
	text, err := os.ReadFile("deploy/helm/tideline/templates/_parts.tpl")
	require.NoError(t, err)
	for _, want := range []string{
		"readOnlyRootFilesystem: true", "runAsNonRoot: true", "{path: /readyz, port: admin}", "{path: /livez, port: admin}", "PodDisruptionBudget",
		"enableServiceLinks: false", "TIDELINE_DATABASE_URL_FILE",
	} {
		require.Contains(t, string(text), want)
	}
}

// TestProxyPassesTheHostOn checks that nginx passes the Host header on unchanged, with its port:
// WebSockets compare it with the origin of the page.
func TestProxyPassesTheHostOn(t *testing.T) {
	text, err := os.ReadFile("deploy/nginx/tideline.conf")
	require.NoError(t, err)
	for _, set := range regexp.MustCompile(`proxy_set_header Host +(\S+);`).FindAllStringSubmatch(string(text), -1) {
		require.Equal(t, "$http_host", set[1])
	}
	require.Contains(t, string(text), "proxy_set_header Host ")
}

{{/* Names and labels of the objects of a role, and the Deployment template that both roles share. */}}

{{- define "tideline.name" -}}
{{ printf "%s-%s" .root.Release.Name .role | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tideline.selector" -}}
app.kubernetes.io/name: tideline
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "tideline.labels" -}}
{{ include "tideline.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "tideline.deployment" -}}
{{- $values := index .root.Values .role -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "tideline.name" . }}
  labels: {{- include "tideline.labels" . | nindent 4 }}
spec:
  {{- if not $values.autoscaling.enabled }}
  replicas: {{ $values.replicas }}
  {{- end }}
  selector:
    matchLabels: {{- include "tideline.selector" . | nindent 6 }}
  strategy:
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  template:
    metadata:
      labels: {{- include "tideline.labels" . | nindent 8 }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false # Kubernetes would set variables that look like settings of Tideline
      terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "tideline.selector" . | nindent 14 }}
      securityContext: {{- include "tideline.user" . | nindent 8 }}
      containers:
        - name: {{ .role }}
          image: {{ include "tideline.image" . }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [{{ .role }}]
          env:
            {{- include "tideline.env" . | nindent 12 }}
          ports:
            {{- if eq .role "server" }}
            - {name: http, containerPort: 8080}
            {{- end }}
            - {name: admin, containerPort: 8090}
          startupProbe: # a pod may wait until another has migrated the database
            httpGet: {path: /livez, port: admin}
            periodSeconds: 5
            failureThreshold: 120
          livenessProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: admin}
            periodSeconds: 5
            timeoutSeconds: 4
            failureThreshold: 2
          {{- if semverCompare ">=1.30-0" .root.Capabilities.KubeVersion.Version }}
          lifecycle: # gives load balancers time to remove the pod before the process ends
            preStop: {sleep: {seconds: 5}}
          {{- end }}
          resources: {{- toYaml $values.resources | nindent 12 }}
          {{- include "tideline.confined" . | nindent 10 }}
      volumes: {{- include "tideline.volumes" . | nindent 8 }}
{{- end }}

{{- define "tideline.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "tideline.name" . }}
  labels: {{- include "tideline.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "tideline.selector" . | nindent 6 }}
{{- end }}

{{/* Templates that the pods of servers, workers and migrations share. */}}

{{- define "tideline.image" -}}
{{- $values := index .root.Values .role | default dict -}}
{{ printf "%s:%s" .root.Values.image.repository ($values.tag | default .root.Values.image.tag | default .root.Chart.AppVersion) | quote }}
{{- end }}

{{- define "tideline.env" -}}
- {name: TIDELINE_ADMIN_ADDR, value: ":8090"}
- {name: TIDELINE_LOG_FORMAT, value: json}
- {name: TIDELINE_DATABASE_URL_FILE, value: /secrets/database-url}
- {name: TIDELINE_REDIS_URL_FILE, value: /secrets/redis-url}
{{- range $name, $value := .root.Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "tideline.user" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tideline.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: secrets, mountPath: /secrets, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  - {name: tmp, mountPath: /data}
{{- end }}

{{- define "tideline.volumes" -}}
- name: secrets
  secret:
    secretName: {{ .root.Values.secret.name }}
    defaultMode: 0440
    items:
      - {key: {{ .root.Values.secret.databaseURL }}, path: database-url}
      - {key: {{ .root.Values.secret.redisURL }}, path: redis-url}
- {name: tmp, emptyDir: {}}
{{- end }}

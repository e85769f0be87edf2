{{/*
What a schema can't say with a reason. Patterns as in include/tidemark/connections/shown.py.
*/}}
{{- define "tidemark.secretName" -}}
{{- $name := regexReplaceAll "credentials?-provider|token[.-](endpoint|refresh|exchange|expires)|token-type|credentials?-uri" . "" -}}
{{- if regexMatch "(?i)secret|passw|passphrase|pwd|token|credential|authorization|bearer|cookie|jwt|connection[._-]?string|header[.]|(^|[._-])sas([._-]|$)|(access|private|client|api|account|fernet|certificate)[._-]?key|[.]key$" $name }}true{{ end -}}
{{- end }}

{{- define "tidemark.shownName" -}}
{{- if regexMatch "(?i)^((spark[.])?uri|((spark|pyiceberg|java|librdkafka)[.])?(type|warehouse|prefix|scope|audience|resource|oauth2-server-uri|ref|namespace-separator|rest-page-size|snapshot-loading-mode|scan-planning-mode|view-endpoints-supported|metrics-reporter-impl|clients|client[.]region|client[.]factory|client[.]credentials-provider|client[.]profile-name|client[.]role-arn|client[.]assume-role[.]arn|client[.]assume-role[.]region|client[.]assume-role[.]session-name|client[.]assume-role[.]timeout-sec|jdbc[.]user|jdbc[.]schema-version|jdbc[.]ssl|jdbc[.]sslmode|jdbc[.]sslrootcert|jdbc[.]sslcert|jdbc[.]currentschema|jdbc[.]applicationname|jdbc[.]connecttimeout|jdbc[.]logintimeout|jdbc[.]sockettimeout|jdbc[.]tcpkeepalive|jdbc[.]gssencmode|jdbc[.]channelbinding|jdbc[.]strict-mode|rest[.]auth[.]type|rest[.]auth[.]basic[.]username|rest[.]sigv4-enabled|rest[.]sigv4[.]max-retries|rest[.]signing-name|rest[.]signing-region|auth[.]type|auth[.]basic[.]username|ssl[.]cabundle|token-expires-in-ms|token-refresh-enabled|token-exchange-enabled|glue[.]id|glue[.]endpoint|glue[.]account-id|glue[.]skip-archive|glue[.]skip-name-validation|glue[.]max-retries|glue[.]retry-mode|glue[.]lakeformation-enabled|hive[.]hive2-compatible|hive[.]kerberos-authentication|hive[.]kerberos-service-name|lock-check-min-wait-time|lock-check-max-wait-time|lock-check-retries|authentication[.]type|authentication[.]oauth2[.]token-endpoint|authentication[.]oauth2[.]client-id|authentication[.]oauth2[.]client-scopes|authentication[.]oauth2[.]grant-type|authentication[.]oauth2[.]issuer-url|s3[.]endpoint|s3[.]region|s3[.]path-style-access|s3[.]force-virtual-addressing|s3[.]remote-signing-enabled|s3[.]sse[.]type|s3[.]proxy-uri|s3[.]connect-timeout|s3[.]request-timeout|s3[.]role-arn|s3[.]role-session-name|s3[.]delete-enabled|s3[.]checksum-enabled|s3[.]acl|s3[.]threads|s3[.]staging-dir|s3[.]multipart[.]size|s3[.]multipart[.]threshold|http-client[.]type|http-client[.]proxy-endpoint|http-client[.]connection-timeout-ms|http-client[.]socket-timeout-ms|http-client[.]max-connections|io-impl|io[.]manifest[.]cache-enabled|catalog-impl|cache-enabled|bootstrap[.]servers|client[.]id|client[.]rack|client[.]dns[.]lookup|compression[.]type|connections[.]max[.]idle[.]ms|metadata[.]max[.]age[.]ms|reconnect[.]backoff[.]max[.]ms|reconnect[.]backoff[.]ms|retry[.]backoff[.]max[.]ms|retry[.]backoff[.]ms|socket[.]connection[.]setup[.]timeout[.]ms|socket[.]receive[.]buffer[.]bytes|socket[.]send[.]buffer[.]bytes|socket[.]timeout[.]ms|receive[.]buffer[.]bytes|send[.]buffer[.]bytes|request[.]timeout[.]ms|security[.]protocol|sasl[.]mechanism|sasl[.]mechanisms|sasl[.]username|sasl[.]oauthbearer[.]method|sasl[.]oauthbearer[.]grant[.]type|sasl[.]oauthbearer[.]client[.]id|sasl[.]oauthbearer[.]scope|sasl[.]oauthbearer[.]token[.]endpoint[.]url|https[.]ca[.]location|ssl[.]ca[.]location|ssl[.]certificate[.]location|ssl[.]key[.]location|ssl[.]keystore[.]location|ssl[.]keystore[.]type|ssl[.]truststore[.]location|ssl[.]truststore[.]type|ssl[.]endpoint[.]identification[.]algorithm|metadata[.]broker[.]list|sasl[.]oauthbearer[.]client[.]credentials[.]client[.]id|broker[.]address[.]family|sasl[.]kerberos[.]service[.]name|socket[.]keepalive[.]enable|socket[.]nagle[.]disable|aws[.]region|aws[.]profile|aws[.]role[.]arn|aws[.]role[.]session[.]name|table-(default|override)[.][a-z0-9._-]+))$" . }}true{{ end -}}
{{- end }}

{{/* Whether an address may have a password, of any characters: it has an @, or a parameter that is not on the list. */}}
{{- define "tidemark.isHidden" -}}
{{- if not (hasPrefix "jdbc:sqlite:" .) }}{{ if contains "@" . }}true{{ end }}{{ end }}
{{- $separators := ternary "[?&]" "[?&;#]" (hasPrefix "jdbc:sqlite:" .) }}
{{- range rest (regexSplit $separators . -1) }}
  {{- if not (regexMatch "(?i)^(user|applicationname|connecttimeout|logintimeout|sockettimeout|options|currentschema|ssl|sslmode|sslcert|sslrootcert|gssencmode|channelbinding|tcpkeepalive|targetservertype|loadbalancehosts|preparethreshold|preferquerymode|rewritebatchedinserts|stringtype|sslfactory|defaultrowfetchsize|readonly|journal_mode|synchronous|busy_timeout|realm|tenant)(=.*)?$" .) }}true{{ end }}
{{- end }}
{{- end }}

{{/* Whether any other text contains an address with user and password. */}}
{{- define "tidemark.hasLogin" -}}
{{- if regexMatch "(?i)//[^\\s@]*:[^\\s@]*@|[?&;][^=&;\\s]*(passw|pwd|secret|token)[^=&;\\s]*=" . }}true{{ end -}}
{{- end }}

{{- define "tidemark.checks" -}}
{{- $values := .Values }}
{{- if not $values.settings.bucket }}{{ fail "settings.bucket: missing; it is the bucket of the archive and of the tables" }}{{ end }}
{{- range $name, $value := $values.settings }}
  {{- if has $name (list "streams_dir" "jars_dir" "spark_master") }}
    {{- fail (printf "settings.%s: the chart sets it; see definitions, image, and cores and cluster of each layer" $name) }}
  {{- end }}
  {{- include "tidemark.checkSecret" (list (printf "settings.%s" $name) $name $value $values.secrets) }}
{{- end }}
{{- range $name, $value := $values.env }}
  {{- if hasPrefix "TIDEMARK_" $name }}{{ fail (printf "env.%s: it is a setting; set settings.%s" $name (trimPrefix "TIDEMARK_" $name | lower)) }}{{ end }}
  {{- if include "tidemark.secretName" $name }}{{ fail (printf "env.%s: it has a secret's name, and everyone who may read pods would see it" $name) }}{{ end }}
  {{- if include "tidemark.hasLogin" (toString $value) }}{{ fail (printf "env.%s: it may have a password, and everyone who may read pods would see it" $name) }}{{ end }}
{{- end }}
{{- range $stream, $layers := $values.streams }}
  {{- if and $values.definitions (not (hasKey $values.definitions (printf "%s.yaml" $stream))) }}
    {{- fail (printf "streams.%s: definitions has no %s.yaml, and replaces the image's folder" $stream $stream) }}
  {{- end }}
{{- end }}
{{- range (include "tidemark.processes" . | fromJson).items }}
  {{- if and (has .layer (list "reconcile" "maintenance")) (not .options.schedule) }}
    {{- fail (printf "streams.%s.%s.schedule: missing; such as \"30 0 * * *\"" .stream .layer) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Call with (list place name value secrets). The message never has the value. */}}
{{- define "tidemark.checkSecret" -}}
{{- $place := index . 0 }}{{- $value := index . 2 }}{{- $secrets := index . 3 }}
{{- $clients := list "settings.kafka_properties" "settings.speed_kafka_properties" "settings.catalog_properties" }}
{{- $addresses := list "settings.kafka_bootstrap" "settings.speed_kafka_bootstrap" "settings.s3_endpoint" "settings.s3_sts_endpoint" "settings.s3_proxy" "settings.catalog_uri" }}
{{- if and (has $place $clients) (not (kindIs "map" $value)) }}
  {{- fail (printf "%s: write the properties as a map, not as JSON" $place) }}
{{- else if kindIs "map" $value }}
  {{- range $name, $inner := $value }}
    {{- if and (has $place $clients) (not (include "tidemark.shownName" $name)) (not (hasPrefix "file:/" (toString $inner))) }}
      {{- fail (printf "%s.%s: not on the list of shown properties; check its spelling, or name it in secrets, and write file:/run/secrets/tidemark/NAME here" $place $name) }}
    {{- end }}
    {{- include "tidemark.checkSecret" (list (printf "%s.%s" $place $name) $name $inner $secrets) }}
  {{- end }}
{{- else }}
  {{- $text := toString $value }}
  {{- if and (include "tidemark.secretName" (index . 1)) (not (hasPrefix "file:/" $text)) }}
    {{- fail (printf "%s: a secret; name it in secrets, and write file:/run/secrets/tidemark/NAME here" $place) }}
  {{- end }}
  {{- $ofClient := has (regexReplaceAll "_properties[.].*" $place "_properties") $clients }}
  {{- $isAddress := or (contains "//" $text) (hasPrefix "jdbc:" $text) (and (contains "@" $text) (contains ":" $text)) }}
  {{- $hidden := "" }}
  {{- if or (has $place $addresses) (and $ofClient $isAddress (not (hasPrefix "file:/" $text))) }}
    {{- $hidden = include "tidemark.isHidden" $text | trim }}
  {{- else }}
    {{- $hidden = include "tidemark.hasLogin" $text }}
  {{- end }}
  {{- if $hidden }}
    {{- fail (printf "%s: it may have a password; set the password in a property of its own" $place) }}
  {{- end }}
  {{- if and (hasPrefix "file:/run/secrets/tidemark/" $text) (not (hasKey $secrets (trimPrefix "file:/run/secrets/tidemark/" $text))) }}
    {{- fail (printf "%s: secrets has no entry for this file" $place) }}
  {{- end }}
{{- end }}
{{- end }}
